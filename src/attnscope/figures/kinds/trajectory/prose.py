"""Table -> what the lines show: where each begins and ends, and since when it differs from where it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import along
from attnscope.analysis.means import interval_name
from attnscope.analysis.run import Run
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.trajectory.options import TrajectoryOptions
from attnscope.figures.prose import Document, Strong, Table, Text, document

Row = dict[str, Any]

SENTENCES = 6  # lines that are described in sentences; more are rows of a table
MOST_ROWS = 12  # of that table
NAMED = 6  # places named one by one


def look(run: Run, options: TrajectoryOptions, table: pl.DataFrame) -> Look:
    models, measures = options.models_of(run), options.measures or selection.classes(run, options)
    series = selection.series(run, options)
    group = selection.queries(run, options)
    whose = selection.whose_words(run, group, measures[0]) if series is None else _each(series)
    heads = selection.heads_words(run, options)
    over = f"{heads} of a layer" if options.by else f"{selection.layers_words(run, options, models)} and {heads}"
    relative = ", relative to uniform attention" if options.value == "enrichment" else ""
    if not options.measures or options.measures[0] in run.token_sets:
        what = f"share of attention{relative}"
    else:
        what = selection.measure_words(run, options.measures[0]) or options.measures[0]
    how = interval_name(run, options.measures or ())
    band = selection.interval_words("band", *(table[name] for name in ("value", "low", "high", "n")), interval=how)
    return Look(
        title=options.title or _title(run, options),
        y=options.y or what,
        caption=f"Attention from {whose}; mean over {over}, then over n = "
        f"{selection.prompts_words(run, table['n'])}; {band}."
        + selection.lacking_words(run, options, measures, table["n"], summed=len(options.measures) > 1)
        + (" Layers and heads are numbered from 1." if options.number_from else ""),
        among=along(of_classes=not options.measures or options.measures[0] in run.token_sets),
        number_from=options.number_from,
    )


def _each(series: str) -> str:
    """A series in a caption: its title, or "each step" if the study named its groups."""
    return series if " " in series else f"each {series}"


def _title(run: Run, options: TrajectoryOptions) -> str:
    series = selection.series(run, options)
    return "While it is trained" if series is None else f"By {series}"


def write(table: pl.DataFrame, look: Look) -> Document:
    panels, series = (list(dict.fromkeys(table[name])) for name in ("panel", "series"))
    lines = [
        (_name(str(panel), str(name), panels, series), part.sort("x").to_dicts())
        for (panel, name), part in table.group_by("panel", "series", maintain_order=True)
    ]
    axis = next(iter(table["axis"].drop_nulls()), "x")
    numbers: list[Text | Table] = [(Strong(name), f": {_line(rows)}") for name, rows in lines]
    if len(lines) > SENTENCES:
        numbers = list(_tabled(lines))
    if table["q"].is_not_null().any():
        numbers.append(f"q is the false discovery rate {look.among}.")
    return document(
        look.title,
        {
            "Overview": [
                f"Lines by {axis}, in {sentences.counted(len(panels), 'panel')} ({sentences.listed(panels)}): "
                f"{sentences.listed(series)}.",
                look.caption,
            ],
            "Axes": [
                f"Horizontal: {axis}. Vertical: {look.y or 'value'}; every panel has its own scale, which need not "
                "begin at 0."
            ],
            "Numbers": numbers,
        },
    )


def _tabled(lines: Sequence[tuple[str, list[Row]]]) -> Iterator[Text | Table]:
    """A row for each line; of many lines, for those whose ends are farthest from what they are compared with."""
    shown = list(lines)
    if len(lines) > MOST_ROWS:
        by_size = sorted(lines, key=lambda line: -abs(line[1][-1]["difference"] or 0))
        chosen = {name for name, _ in by_size[:MOST_ROWS]}
        shown = [line for line in lines if line[0] in chosen]
        yield (
            f"Of {len(lines)} lines, the {len(shown)} whose last value is farthest from what it is compared with, "
            "significant or not; the csv has all."
        )
    columns = ("", "first", "last", "last minus what it is compared with", "differs significantly")
    rows = tuple((name, *_cells(rows)) for name, rows in shown)
    yield Table(columns, rows, tuple(differs(rows[-1]) is False for _, rows in shown))


def _name(panel: str, series: str, panels: Sequence[str], names: Sequence[str]) -> str:
    if len(panels) == 1 and len(names) > 1:
        return series
    return panel if len(names) == 1 and len(panels) > 1 else f"{panel}, {series}"


def differs(row: Row) -> bool | None:
    """Whether a value differs from the first of its line; None if it is the first, or was not tested."""
    if row["q"] is None:
        return None
    return bool(row["q"] < FALSE_DISCOVERIES and abs(row["difference"]) > (row["floor"] or 0))


def beside(rows: Sequence[Row]) -> str | None:
    """The other line that a line is compared with, place by place; None if it is compared with its own first place."""
    return next((row["against"] for row in rows if row["against"] not in (None, _at(rows[0]))), None)


def _line(rows: Sequence[Row]) -> str:
    """Where a line begins and ends, whether that is a change, and at which places it differs."""
    first, last = rows[0], rows[-1]
    ends = _ends(rows)
    words = f"{ends[0]} at {_at(first)}"
    if beside(rows) is not None:
        return f"{words}; at {_at(last)} {ends[1]}. {_beside(rows)}"
    if len(rows) == 1:
        return f"{words}; there is nothing to compare it with."
    words += f"; at {_at(last)} {ends[1]}, {_change(first, last, _within(rows))}."
    between = [row for row in rows[1:-1] if row["q"] is not None]
    return f"{words} {_between(first, between, differs(last))}" if between else words


def _beside(rows: Sequence[Row]) -> str:
    """How a line differs from another one, place by place."""
    against, tested = beside(rows), [row for row in rows if row["q"] is not None]
    if not tested:
        return f"Differences from {against} at the same places are not tested: too few prompts, or made by the edits."
    different = [row for row in tested if differs(row)]
    many = f"Of {sentences.counted(len(tested), 'place')} compared with {against}"
    if not different:
        return f"{many}, none differs significantly."
    above = sum(row["difference"] > 0 for row in different)
    most = max(different, key=lambda row: abs(row["difference"]))
    size = sentences.with_interval(most["difference"], most["difference_low"], most["difference_high"])
    ways = f"{above} above and {len(different) - above} below"
    where = f"{_at(most)} ({size}, {sentences.rate(most['q'])})"
    return f"{many}, {len(different)} differ significantly: {ways}; most at {where}."


def _change(first: Row, last: Row, within: str) -> str:
    """Whether the last value is above or below the first: only said where it is significant."""
    if last["difference"] is None:
        return f"not compared with {_at(first)}: no prompt has both"
    size = sentences.with_interval(last["difference"], last["difference_low"], last["difference_high"]) + within
    if last["q"] is None and last["difference_low"] is not None:
        return f"a change of {size}, not tested: later queries see more tokens"
    if last["q"] is None:
        return f"a change of {size}; {sentences.untested(last['n'] or 0, same=not last['difference'])}"
    if differs(last):
        way = "above" if last["difference"] > 0 else "below"
        return f"significantly {way} {_at(first)} (change {size}, {sentences.rate(last['q'])})"
    rounding = last["q"] < FALSE_DISCOVERIES and last["floor"]
    why = f"within rounding error ({last['floor']:.1e})" if rounding else "not significant"
    return f"a change of {size}, {why} ({sentences.rate(last['q'])})"


def _between(first: Row, rows: Sequence[Row], last: bool | None) -> str:
    """At which of the places between it differs from the first, and where most."""
    different = [row for row in rows if differs(row)]
    most = max(rows, key=lambda row: abs(row["difference"]))
    points = sentences.counted(len(rows), "point")
    if not different:
        return f"None of the {points} tested between differs significantly from {_at(first)}."
    places = "" if len(different) == len(rows) or len(different) > NAMED else f" ({_places(different)})"
    words = f"Of the {points} tested between, {len(different)} differ{'s' * (len(different) == 1)} significantly"
    way = "above" if most["difference"] > 0 else "below"
    peak = f"; the farthest is {_at(most)}, {way} it by {sentences.number(abs(most['difference']))}"
    return f"{words} from {_at(first)}{places}{peak if differs(most) else ''}."


def _cells(rows: Sequence[Row]) -> tuple[str, str, str, str]:
    first, last = rows[0], rows[-1]
    later = rows if beside(rows) is not None else rows[1:]
    start, end = _ends(rows)
    if not later:
        return f"{start} at {_at(first)}", "", "", ""
    change = ""
    if last["difference"] is not None:
        change = sentences.with_interval(last["difference"], last["difference_low"], last["difference_high"])
        change += _within(rows)
        change += f", {sentences.rate(last['q'])}" if last["q"] is not None else ", not tested"
        change += ", not significant" if differs(last) is False else ""
    different = [row for row in later if differs(row)]
    count = f"{len(different)} of {len(later)}"
    some = f" ({_places(different)})" if 0 < len(different) < len(later) and len(different) <= NAMED else ""
    return f"{start} at {_at(first)}", f"{end} at {_at(last)}", change, f"{count}{some}"


def _ends(rows: Sequence[Row]) -> list[str]:
    """The first and the last value of a line, with how many prompts they are over, if that changes."""
    return [_value(row) + (f" (n = {row['n']})" if _varies(rows) else "") for row in (rows[0], rows[-1])]


def _within(rows: Sequence[Row]) -> str:
    """Which prompts a change is over, where its ends are over others."""
    return " within prompts that have both" if _varies(rows) else ""


def _varies(rows: Sequence[Row]) -> bool:
    return len({row["n"] for row in rows}) > 1


def _places(rows: Sequence[Row]) -> str:
    return sentences.listed([_at(row) for row in rows])


def _at(row: Row) -> str:
    return str(row["at"] or f"{row['x']:g}")


def _value(row: Row) -> str:
    return sentences.with_interval(row["value"], row["low"], row["high"])
