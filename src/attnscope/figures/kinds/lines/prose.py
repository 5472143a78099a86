"""Table -> what the lines show: their peaks, where they part, and how the head ranks among all heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import polars as pl

from attnscope.analysis.columns import WITHIN
from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import POSITIONS
from attnscope.analysis.run import Run
from attnscope.analysis.spread import extent
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.lines.axis import FORMS, anchor_words, segment_within, x_title
from attnscope.figures.kinds.lines.options import LinesOptions
from attnscope.figures.kinds.lines.statistics import panel_title, panels, series_of
from attnscope.figures.prose import Document, Strong, Text, by_panel, document

AMONG = f"q is the false discovery rate {POSITIONS}."
OVER = {"visible": "\nmean over the queries\nthat see the token", "all": "\nmean over all queries"}


def look(run: Run, options: LinesOptions, table: pl.DataFrame) -> Look:
    group = selection.queries(run, options)
    within = segment_within(table["align"][0])
    weight = "average attention weight" + (" per token" if within else "")
    return Look(
        title=options.title or f"Attention received {f'within {within}' if within else 'along the prompt'}",
        y=f"{options.y or weight}{OVER[options.over] if group != 'last' else ''}",
        caption=_caption(run, options, table, group),
        number_from=options.number_from,
    )


def _caption(run: Run, options: LinesOptions, table: pl.DataFrame, group: str) -> str:
    over = "the queries that can see the token" if options.over == "visible" else "all queries"
    whose = selection.group_words(group) + ("" if group == "last" else f", mean over {over}")
    _, most = extent(table["n"])
    prompts = selection.prompts_words(run, table["n"].filter(table["n"] == most))
    many = f"{_up_to(table)}{prompts}, {_matched(options)}"
    band = selection.interval_words("band", *(table[name] for name in ("attention", "low", "high", "n")))
    chosen = (
        f"The {sentences.counted(options.top, 'head')} of each model whose first two lines differ most"
        f"{_beyond(table)}, chosen on {'half of ' if table['half'].is_not_null().any() else ''}these prompts. "
        if options.top
        else ""
    )
    carried = any(place.model != panel.model for panel in panels(run, options) for place in panel.also)
    return (
        f"{chosen}Attention from {whose}; {f'mean over {many}; ' if most > 1 else ''}{band}."
        + _left_out(run, options, table)
        + (" Differences on tokens that inserted tokens see are not tested." if _by_edits(table) else "")
        + (" Tokens of the other models are matched to those of the first by their characters." if carried else "")
        + (" Layers and heads are numbered from 1." if options.number_from else "")
    )


def _up_to(table: pl.DataFrame) -> str:
    return "up to " if table["n"].n_unique() > 1 else ""


def _matched(options: LinesOptions) -> str:
    """How prompts of different lengths are brought together."""
    align = options.aligned
    if align is not None and align.by == WITHIN:
        return f"each cut into {align.bins} bins from the start of {align.segment} to its end (mean weight per token)"
    anchor = anchor_words(None if align is None else align.written)
    how = f"aligned at {anchor}" if anchor else "matched by token position"
    return f"{how}; positions that fewer than half of them reach are not shown"


def _left_out(run: Run, options: LinesOptions, table: pl.DataFrame) -> str:
    """Prompts without the segment that lines are aligned by, and lines of which none is left."""
    if options.aligned is None:
        return ""
    segment, (least, most) = options.aligned.segment, extent(table["lacking"])
    lacking = f" Left out: {sentences.range_of(least, most, 'prompt')} without {segment}." if most else ""
    gone = []
    for panel in panels(run, options):
        of_panel = table.filter(pl.col("panel") == panel_title(panel))
        for form in dict.fromkeys(of_panel["form"]):
            drawn = set(of_panel.filter(pl.col("form") == form)["series"])
            gone += [f"{name} ({FORMS[form]})" for name in series_of(run, options, panel) if name not in drawn]
    absent = sentences.listed(list(dict.fromkeys(gone))) if gone else ""
    return lacking + (f" No line for {absent}: no prompt has {segment} there." if gone else "")


def _by_edits(table: pl.DataFrame) -> bool:
    """Whether some differences have an interval, but no test."""
    return bool((table["difference_low"].is_not_null() & table["q"].is_null()).any())


def _beyond(table: pl.DataFrame) -> str:
    nulls = table["null"].drop_nulls().unique(maintain_order=True).to_list()
    return f", beyond the distance of {sentences.listed(nulls)}" if nulls else ""


def write(table: pl.DataFrame, look: Look) -> Document:
    titles, forms = list(dict.fromkeys(table["panel"])), list(dict.fromkeys(table["form"]))
    numbers: list[Text] = []
    peaks: dict[str, float] = {}
    facts: dict[str, dict[str, str | None]] = {}
    for title in titles:
        panel = table.filter(pl.col("panel") == title)
        for form in dict.fromkeys(panel["form"]):
            part = panel.filter(pl.col("form") == form)
            for name in dict.fromkeys(part["series"]):
                line = part.filter(pl.col("series") == name)
                numbers.append((Strong(f"{title}, {form}, {name}"), f": {_peaks(line)}"))
                if form == panel["form"][0]:
                    peaks[f"{title}, {name}"] = float(line["attention"].max())  # type: ignore[arg-type]
                if inserted := _inserted(line):
                    facts.setdefault(f"Mean ({name})", {})[title] = inserted
        first = panel.filter(pl.col("form") == panel["form"][0])  # in others a position holds different tokens
        found = [_parting(first), *(_differing(line) for _, line in first.group_by("series", maintain_order=True))]
        for what, words in filter(None, [*found, *_rank(panel)]):
            facts.setdefault(what, {})[title] = words
    return document(
        look.title,
        {
            "Overview": [
                f"Lines in {sentences.counted(len(titles), 'panel')}.",
                *_lines_of(table, titles),
                f"Rows: {'; '.join(_x_title(table, form) for form in forms)}.",
                look.caption,
                AMONG if table["q"].is_not_null().any() else None,
            ],
            "Axes": [
                *(f"Horizontal, {form}: {_axis(table.filter(pl.col('form') == form))}." for form in forms),
                f"Vertical: {look.y.replace(chr(10), ', ', 1) or 'attention'}; every panel has its own scale.",
            ],
            "Numbers": numbers,
            "Observations": [
                sentences.extreme(peaks, "peak", most=True),
                _ranked_by(table),
                *by_panel(titles, facts),
            ],
        },
    )


def _lines_of(table: pl.DataFrame, titles: Sequence[str]) -> Iterator[str]:
    """Which lines there are: once, if every panel has the same."""
    names = {title: tuple(dict.fromkeys(table.filter(pl.col("panel") == title)["series"])) for title in titles}
    if len(set(names.values())) == 1:
        titles, names = [], {"": next(iter(names.values()))}
        yield f"In each, {sentences.counted(len(names['']), 'line')}: {sentences.listed(names[''])}."
    for title in titles:
        yield f"{title}: {sentences.counted(len(names[title]), 'line')} ({sentences.listed(names[title])})."


def _x_title(table: pl.DataFrame, form: str) -> str:
    return x_title(form, table.filter(pl.col("form") == form)["align"][0])


def _axis(part: pl.DataFrame) -> str:
    align = part["align"][0]
    first, last = extent(part["position"])
    within, anchor = segment_within(align), anchor_words(align)
    if within is not None:
        return f"relative position within {within}, 0 to 1, in {sentences.counted(last - first + 1, 'bin')}"
    return f"token position {first:.0f} to {last:.0f}{f' from {anchor}' if anchor else ''}"


def _peaks(line: pl.DataFrame, count: int = 3) -> str:
    top = line.sort("attention", descending=True, maintain_order=True).head(count)
    most = int(line["n"].max() or 0)  # type: ignore[arg-type]
    peaks = [
        f"{sentences.with_interval(row['attention'], row['low'], row['high'])} at {_place(row)}"
        + (f" (n = {row['n']})" if row["n"] is not None and row["n"] < most else "")
        for row in top.iter_rows(named=True)
    ]
    middle = sentences.number(float(line["attention"].median()))  # type: ignore[arg-type]
    many = sentences.counted(len(line), _unit(line))
    return f"highest {sentences.listed(peaks)}; median {middle} over {many}{_reach(line)}."


def _reach(line: pl.DataFrame) -> str:
    """How many prompts reach the first position of a line, the middle and the last; if that changes."""
    if line["n"].null_count() or line["n"].n_unique() < 2:
        return ""
    rows = list(dict.fromkeys((0, len(line) // 2, len(line) - 1)))
    ends = [f"{line['n'][row]} at {line['position'][row]}" for row in rows]
    return f"; prompts that reach a position: {sentences.listed(ends)}"


def _place(row: dict[str, Any]) -> str:
    return f"position {row['position']}" if row["relative"] is None else f"relative position {row['relative']:.3g}"


def _unit(line: pl.DataFrame) -> str:
    return "position" if line["relative"].is_null().all() else "bin"


def _inserted(line: pl.DataFrame) -> str | None:
    within, rest = line["within"][0], line["without"][0]
    if within is None or rest is None:
        return None
    return f"{sentences.number(within)} per inserted token, {sentences.number(rest)} per other token"


def _parting(part: pl.DataFrame) -> tuple[str, str] | None:
    """Which two lines are furthest apart and where, and how often the later one is above the other."""
    lines = {name: part.filter(pl.col("series") == name) for name in dict.fromkeys(part["series"])}
    pairs = {
        (one, two): lines[one]
        .select("position", "relative", a="attention")
        .join(lines[two].select("position", b="attention"), on="position", maintain_order="left")
        .with_columns(gap=pl.col("b") - pl.col("a"))
        for one, two in combinations(lines, 2)
    }
    pairs = {names: both for names, both in pairs.items() if len(both)}
    if not pairs:
        return None
    (one, two), both = max(pairs.items(), key=lambda pair: float(pair[1]["gap"].abs().max()))  # type: ignore[arg-type]
    widest = both.sort(pl.col("gap").abs(), descending=True, maintain_order=True).row(0, named=True)
    if widest["gap"] == 0:
        return "Equal wherever they overlap", sentences.listed(list(lines))
    gap = f"{'+' if widest['gap'] > 0 else '-'}{sentences.number(abs(widest['gap']))} at {_place(widest)}"
    tested = _tested_at(lines[two], one, widest["position"])
    above = f"above at {int((both['gap'] > 0).sum())} of {sentences.counted(len(both), _unit(both))}"
    return f"Largest difference, {two} minus {one}", f"{gap} ({tested}); {above}, significant or not"


def _tested_at(line: pl.DataFrame, other: str, position: int) -> str:
    """Whether a line differs from another one at a position."""
    row = line.filter(pl.col("position") == position).row(0, named=True)
    if row["against"] != other or row["q"] is None:
        return "not tested"
    verdict = "significant" if row["q"] < FALSE_DISCOVERIES else "not significant"
    return f"{verdict}, {sentences.rate(row['q'])}"


def _differing(line: pl.DataFrame) -> tuple[str, str] | None:
    """At how many positions a line differs from the one it is compared with."""
    tested = line.drop_nulls("q")
    if not len(tested):
        return None
    significant = tested.filter(pl.col("q") < FALSE_DISCOVERIES)
    up = int((significant["difference"] > 0).sum())
    what = f"Significantly different (q < {FALSE_DISCOVERIES}), {line['series'][0]} minus {line['against'][0]}"
    return what, f"{up} above and {len(significant) - up} below of {sentences.counted(len(tested), _unit(tested))}"


def _rank(panel: pl.DataFrame) -> Iterator[tuple[str, str]]:
    row = panel.row(0, named=True)
    if not _has_rank(row) or panel["series"].n_unique() < 2:
        return
    yield "Rank", f"{row['rank']} of {row['of']}"
    if row["null"] is None and row["effect"] is not None and row["typical"]:
        yield "Times the median head", f"{row['effect'] / row['typical']:.2g}"
    if row["half"] is not None:
        yield "Effect in the half of the prompts that heads are chosen on", sentences.number(row["half"])
        yield "In the other half", sentences.number(row["other_half"])
    if row["reliability"] is not None:
        yield "Split-half reliability of the ranking", f"{row['reliability']:.2f}"


def _has_rank(row: dict[str, Any]) -> bool:
    return row["rank"] is not None and row["of"] is not None


def _ranked_by(table: pl.DataFrame) -> str | None:
    """Once for all panels: what their ranks are by, and what they can't tell."""
    names = list(dict.fromkeys(table["series"]))
    if not any(map(_has_rank, table.iter_rows(named=True))) or len(names) < 2:
        return None
    by = f"Heads are ranked by the distance between {names[0]} and {names[1]} on shared tokens{_beyond(table)}"
    if table["null"].is_not_null().any():
        return f"{by}."
    return f"{by}. There is no control draw to compare with: chance alone would rank heads too."
