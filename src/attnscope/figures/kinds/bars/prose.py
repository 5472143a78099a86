"""Table -> what the bars show: their sizes, how they compare within prompts, and which class has the largest share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.run import Run
from attnscope.analysis.spread import INTERVAL, extent
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.bars.options import BarsOptions
from attnscope.figures.prose import Document, Strong, Text, document

Row = dict[str, Any]


def look(run: Run, options: BarsOptions, table: pl.DataFrame) -> Look:
    whose = selection.group_words(selection.queries(run, options))
    heads = selection.heads_words(run, options)
    least, most = extent(table["n"])
    interval = f"whisker: {INTERVAL}" if most > 1 else "one prompt, so no interval"
    prompts = sentences.range_of(least, most, "prompt")
    return Look(
        title=options.title or "Where attention lands, by kind of token",
        y=options.y or "share of attention",
        caption=f"Attention from {whose}, mean over {heads} and n = {prompts}; {interval}."
        + (" Layers and heads are numbered from 1." if options.number_from else ""),
        number_from=options.number_from,
    )


@dataclass(frozen=True)
class _Bar:
    """One bar: its parts from the bottom up, and its rows, which all say the same of the whole bar."""

    group: str
    name: str
    rows: list[Row]

    @cached_property
    def total(self) -> float:
        return float(sum(row["mass"] for row in self.rows))

    @property
    def interval(self) -> tuple[float | None, float | None]:
        return self.rows[0]["total_low"], self.rows[0]["total_high"]

    @property
    def parts(self) -> dict[str, float]:
        return {row["token_class"]: row["mass"] for row in self.rows}


def write(table: pl.DataFrame, look: Look) -> Document:
    groups, names, classes = (list(dict.fromkeys(table[column])) for column in ("group", "bar", "token_class"))
    bars = _bars(table, groups, names, classes)
    totals = {f"{bar.group}, {bar.name}": bar.total for bar in bars.values()}
    by_name = {name: {group: bars[group, name].total for group in groups if (group, name) in bars} for name in names}
    return document(
        look.title,
        {
            "Overview": [
                f"Stacked bars in {sentences.counted(len(groups), 'group')} ({sentences.listed(groups)}) of "
                f"{sentences.counted(len(names), 'bar')} ({sentences.listed(names)}).",
                f"From the bottom up: {sentences.listed(classes)}.",
                look.caption,
            ],
            "Axes": [
                f"Vertical: {look.y or 'mass'}; the highest bar reaches {sentences.number(max(totals.values()))}.",
                "Horizontal: the name of each bar is below it, the name of its group above.",
                "x: relative to uniform attention, such as x2.00 for twice as much."
                if table["expected"].is_not_null().any()
                else None,
            ],
            "Numbers": [_numbers(bar) for bar in bars.values()],
            "Observations": [
                sentences.extreme(totals, "bar", most=True),
                sentences.extreme(totals, "bar", most=False),
                *_everywhere(bars, groups, names),
                *_pairs(bars, groups, names),
                *(sentences.trend(values, f"The bar of {name}") for name, values in by_name.items()),
                *(sentences.lead(f"{bar.group}, {bar.name}", bar.parts) for bar in bars.values()),
            ],
        },
    )


def _bars(
    table: pl.DataFrame, groups: Sequence[str], names: Sequence[str], classes: Sequence[str]
) -> dict[tuple[str, str], _Bar]:
    rows = {(row["group"], row["bar"], row["token_class"]): row for row in table.iter_rows(named=True)}
    bars = {
        (group, name): [rows[group, name, each] for each in classes if (group, name, each) in rows]
        for group in groups
        for name in names
    }
    return {place: _Bar(*place, parts) for place, parts in bars.items() if parts}


def _numbers(bar: _Bar) -> Text:
    parts = [
        f"{row['token_class']} {sentences.with_interval(row['mass'], row['low'], row['high'])}{_times([row])}"
        for row in bar.rows
    ]
    whole = f"{sentences.with_interval(bar.total, *bar.interval)}{_times(bar.rows)}"
    return Strong(f"{bar.group}, {bar.name}"), f": {'; '.join(parts)}; together {whole}."


def _everywhere(bars: dict[tuple[str, str], _Bar], groups: Sequence[str], names: Sequence[str]) -> Iterator[str | None]:
    """Which of two neighbours is above the other, in all groups or some."""
    for one, two in pairwise(names):
        if all((group, name) in bars for group in groups for name in (one, two)):
            above = [bars[group, one].total > bars[group, two].total for group in groups]
            yield sentences.consistent(one, two, groups, above)


def _pairs(bars: dict[tuple[str, str], _Bar], groups: Sequence[str], names: Sequence[str]) -> Iterator[str | None]:
    """How two bars of a group compare: within prompts where that is known, else by their intervals."""
    for group in groups:
        for one, two in combinations(names, 2):
            if (group, one) not in bars or (group, two) not in bars:
                continue
            first, second = bars[group, one], bars[group, two]
            against = second.rows[0]["against"]
            if against != one and (group, against) in bars:
                continue  # the second bar is compared with another one
            paired = _paired(second.rows[0]) if against == one else None
            yield paired or sentences.comparison(
                group, (one, first.total, *first.interval), (two, second.total, *second.interval)
            )


def _paired(row: Row) -> str | None:
    """How far a bar is from the one it is compared with, within prompts."""
    difference, against = row["difference"], row["against"]
    if difference is None or against is None:
        return None
    among = "by prompt" if row["pairs"] is None else f"over {sentences.counted(row['pairs'], 'prompt')}"
    size = sentences.with_interval(difference, row["difference_low"], row["difference_high"])
    sentence = f"{row['group']}: {row['bar']} minus {against}, paired {among}, is {size}"
    if row["q"] is None:
        return f"{sentence}; there are too few prompts for a test."
    sentence += f"; {sentences.rate(row['q'])}"
    if row["q"] >= FALSE_DISCOVERIES:
        return f"{sentence}, not significant."
    return f"{sentence}." if differs(row) else f"{sentence}, but within rounding error ({row['floor']:.1e})."


def differs(row: Row) -> bool | None:
    """Whether a bar differs from the one it is compared with; None if it was not compared or tested."""
    if row["q"] is None:
        return None
    return bool(row["q"] < FALSE_DISCOVERIES and abs(row["difference"]) > (row["floor"] or 0))


def times_uniform(rows: Sequence[Row]) -> str:
    """Such as 'x0.85': over what uniform attention would give; empty if that is not known."""
    expected = [row["expected"] for row in rows]
    if any(each is None for each in expected) or sum(expected) <= 0:
        return ""
    return f"x{sum(row['mass'] for row in rows) / sum(expected):.2f}"


def _times(rows: Sequence[Row]) -> str:
    times = times_uniform(rows)
    return f", {times}" if times else ""
