"""Table -> what the lines show: their peaks, where they part, and how the head ranks among all heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.run import Run
from attnscope.analysis.spread import CUT, INTERVAL, extent, is_cut
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.lines.chart import X_TITLES
from attnscope.figures.kinds.lines.options import LinesOptions
from attnscope.figures.kinds.lines.statistics import panels
from attnscope.figures.prose import Document, Strong, Text, by_panel, document

INSERTED = "What an inserted token receives, on average within a prompt, and what others do, "
AMONG = "q is the false discovery rate among the positions of a line."
OVER = {"visible": "\nmean over the queries\nthat see the token", "all": "\nmean over all queries"}


def look(run: Run, options: LinesOptions, table: pl.DataFrame) -> Look:
    group = selection.queries(run, options)
    return Look(
        title=options.title or "Attention received along the prompt",
        y=f"{options.y or 'average attention weight'}{OVER[options.over] if group != 'last' else ''}",
        caption=_caption(run, options, table, group),
        number_from=options.number_from,
    )


def _caption(run: Run, options: LinesOptions, table: pl.DataFrame, group: str) -> str:
    over = "the queries that can see the token" if options.over == "visible" else "all queries"
    whose = selection.group_words(group) + ("" if group == "last" else f", mean over {over}")
    _, most = extent(table["n"])
    prompts = selection.prompts_words(run, table["n"].filter(table["n"] == most))
    many = f"up to {prompts}, matched by token position, as far as half of them reach"
    cut = CUT if is_cut(table["attention"], table["low"], table["high"]) else ""
    chosen = (
        f"The {sentences.counted(options.top, 'head')} of each model whose first two lines differ most"
        f"{_beyond(table)}, chosen on {'half of ' if table['half'].is_not_null().any() else ''}these prompts. "
        if options.top
        else ""
    )
    carried = any(place.model != panel.model for panel in panels(run, options) for place in panel.also)
    return (
        f"{chosen}Attention from {whose}; {f'mean over {many}' if most > 1 else 'one prompt'}; "
        f"{f'band: {INTERVAL}{cut}' if most > 1 else 'no interval'}."
        + (" Differences on tokens that inserted tokens see are not tested." if _by_edits(table) else "")
        + (" Tokens of the other models are matched to those of the first by their characters." if carried else "")
        + (" Layers and heads are numbered from 1." if options.number_from else "")
    )


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
                    facts.setdefault(f"{INSERTED}{name}", {})[title] = inserted
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
                f"Rows: {'; '.join(X_TITLES.get(form, form) for form in forms)}.",
                look.caption,
                AMONG if table["q"].is_not_null().any() else None,
            ],
            "Axes": [
                *(f"Horizontal, {form}: {_reach(table.filter(pl.col('form') == form))}." for form in forms),
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


def _reach(part: pl.DataFrame) -> str:
    first, last = extent(part["position"])
    return f"token position {first:.0f} to {last:.0f}"


def _peaks(line: pl.DataFrame, count: int = 3) -> str:
    top = line.sort("attention", descending=True, maintain_order=True).head(count)
    most = int(line["n"].max() or 0)  # type: ignore[arg-type]
    peaks = [
        f"{sentences.with_interval(row['attention'], row['low'], row['high'])} at position {row['position']}"
        + (f" (n = {row['n']})" if row["n"] is not None and row["n"] < most else "")
        for row in top.iter_rows(named=True)
    ]
    middle = sentences.number(float(line["attention"].median()))  # type: ignore[arg-type]
    return f"highest {sentences.listed(peaks)}; median {middle} over {sentences.counted(len(line), 'position')}."


def _inserted(line: pl.DataFrame) -> str | None:
    within, rest = line["within"][0], line["without"][0]
    return None if within is None or rest is None else f"{sentences.number(within)} and {sentences.number(rest)}"


def _parting(part: pl.DataFrame) -> tuple[str, str] | None:
    """Which two lines are furthest apart and where, and how often the later one is above the other."""
    lines = {name: part.filter(pl.col("series") == name) for name in dict.fromkeys(part["series"])}
    pairs = {
        (one, two): lines[one]
        .select("position", a="attention")
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
    gap = f"{'+' if widest['gap'] > 0 else '-'}{sentences.number(abs(widest['gap']))} at position {widest['position']}"
    tested = _tested_at(lines[two], one, widest["position"])
    above = f"above at {int((both['gap'] > 0).sum())} of {sentences.counted(len(both), 'position')}, significant or not"
    return f"Largest difference, {two} minus {one}", f"{gap} ({tested}); {above}"


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
    return what, f"{up} above and {len(significant) - up} below of {sentences.counted(len(tested), 'position')}"


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
