"""Table -> what the bars show: their sizes, how they compare within prompts, and which class has the largest share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import IN_LAYERS
from attnscope.analysis.run import Run
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.bars.options import BarsOptions
from attnscope.figures.prose import Document, Strong, Text, document

PAIRS = (
    "Each condition is compared with the first of its model, and each model's first condition with that of the first "
    "model."
)
BY_EDITS = "not tested, as the edit alone changes it"
MOST_BARS, MOST_GROUPS = 6, 4  # described one by one; where there are more, the table has the rest
MOST_PAIRS = 4

Row = dict[str, Any]


def are_stacked(table: pl.DataFrame) -> bool:
    """Whether the parts of every bar add up; otherwise all are drawn side by side."""
    return bool(table["adds_up"].fill_null(True).all())


def look(run: Run, options: BarsOptions, table: pl.DataFrame) -> Look:
    whose = selection.group_words(selection.queries(run, options))
    heads = selection.heads_words(run, options)
    stacked = are_stacked(table)
    if stacked:
        heights, ends = table.select(pl.col("mass").sum().over("group", "bar"))["mass"], ("total_low", "total_high")
    else:
        heights, ends = table["mass"], ("low", "high")
    low, high = (table[end] for end in ends)
    interval = selection.interval_words("whisker", heights, low, high, table["n"])
    prompts = selection.prompts_words(run, table["n"])
    many = len(options.models_of(run)) > 1 and len(options.conditions_of(run)) > 1
    return Look(
        title=options.title or "Where attention lands, by kind of token",
        y=options.y or "share of attention",
        caption=f"Attention from {whose}, mean over {heads} and n = {prompts}; {interval}."
        + selection.lacking_words(run, options, selection.classes(run, options), table["n"])
        + ("" if stacked else " Classes over different prompts don't add up, so their bars stand side by side.")
        + (
            " Bars that the edit alone changes are not tested."
            if any(map(_by_edits, table.iter_rows(named=True)))
            else ""
        )
        + (f" {PAIRS}" if many and table["difference"].is_not_null().any() else "")
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


Bars = dict[tuple[str, str], _Bar]
"""By group and name, in the order drawn."""


def write(table: pl.DataFrame, look: Look) -> Document:
    groups, names, classes = (list(dict.fromkeys(table[column])) for column in ("group", "bar", "token_class"))
    bars = _bars(table, groups, names, classes)
    times = " x: relative to uniform attention, such as x2.00 for twice as much."
    stacked = are_stacked(table)
    if stacked:
        heights = {f"{bar.group}, {bar.name}": bar.total for bar in bars.values()}
        numbers, way = list(_numbers(bars, groups)), "From the bottom up"
        observations = [_extremes(heights), *_comparisons(bars, groups, names), _trends(bars, groups, names)]
        observations.append(_leads(list(bars.values())))
    else:
        parts = [(bar, *part) for bar in bars.values() for part in bar.parts.items()]
        heights = {f"{bar.group}, {bar.name}, {each}": mass for bar, each, mass in parts}
        numbers, way = list(_parts(bars)), "Side by side"
        observations = [_extremes(heights)]
    return document(
        look.title,
        {
            "Overview": [
                f"{'Stacked bars' if stacked else 'Bars'} in "
                f"{sentences.counted(len(groups), 'group')} ({sentences.listed(groups)}) of "
                f"{sentences.counted(len(names), 'bar')} ({sentences.listed(names)}). "
                f"{way}: {sentences.listed(classes)}.",
                look.caption,
                f"q is the false discovery rate {IN_LAYERS}." if table["q"].is_not_null().any() else None,
            ],
            "Axes": [
                f"Vertical: {look.y or 'mass'}; the highest bar reaches {sentences.number(max(heights.values()))}. "
                "Horizontal: the name of each bar is below it, the name of its group above."
                f"{times if table['expected'].is_not_null().any() else ''}",
            ],
            "Numbers": numbers,
            "Observations": observations,
        },
    )


def _bars(table: pl.DataFrame, groups: Sequence[str], names: Sequence[str], classes: Sequence[str]) -> Bars:
    rows = {(row["group"], row["bar"], row["token_class"]): row for row in table.iter_rows(named=True)}
    bars = {
        (group, name): [rows[group, name, each] for each in classes if (group, name, each) in rows]
        for group in groups
        for name in names
    }
    return {place: _Bar(*place, parts) for place, parts in bars.items() if parts}


def _parts(bars: Bars) -> Iterator[Text]:
    """Every part of every bar, with how many prompts have the class."""
    for bar in list(bars.values())[:MOST_BARS]:
        parts = [
            f"{row['token_class']} {_size(row['mass'], row['low'], row['high'], [row])}, "
            f"{sentences.counted(row['n'], 'prompt')}"
            for row in bar.rows
        ]
        yield Strong(f"{bar.group}, {bar.name}"), f": {'; '.join(parts)}."
    if len(bars) > MOST_BARS:
        yield "The table has the other bars."


def _numbers(bars: Bars, groups: Sequence[str]) -> Iterator[Text]:
    """Every part of every bar; of many, how high each bar is; of many groups, only those with an extreme bar."""
    if len(bars) <= MOST_BARS:
        for bar in bars.values():
            parts = [f"{row['token_class']} {_size(row['mass'], row['low'], row['high'], [row])}" for row in bar.rows]
            whole = _size(bar.total, *bar.interval, bar.rows)
            yield Strong(f"{bar.group}, {bar.name}"), f": {'; '.join(parts)}; together {whole}."
        return
    shown = groups
    if len(groups) > MOST_GROUPS:
        ordered = sorted(bars.values(), key=lambda bar: bar.total)
        shown = [group for group in groups if group in (ordered[0].group, ordered[-1].group)]
    for group in shown:
        heights = [f"{bar.name} {_size(bar.total, *bar.interval, bar.rows)}" for bar in _of_group(bars, group)]
        yield Strong(group), f": {'; '.join(heights)}."
    yield "The table has the parts of every bar" + (" and the other groups." if len(shown) < len(groups) else ".")


def _size(mass: float, low: float | None, high: float | None, rows: Sequence[Row]) -> str:
    times = times_uniform(rows)
    return sentences.with_interval(mass, low, high) + (f", {times}" if times else "")


def _of_group(bars: Bars, group: str) -> list[_Bar]:
    return [bar for bar in bars.values() if bar.group == group]


def _extremes(totals: dict[str, float]) -> str:
    both = (sentences.extreme(totals, "bar", most=most) for most in (True, False))
    return " ".join(sentence for sentence in both if sentence)


def _comparisons(bars: Bars, groups: Sequence[str], names: Sequence[str]) -> Iterator[str | None]:
    """Pair by pair; where these are many, one sentence per pair for all groups."""
    pairs = [
        (one, two, [group for group in groups if (group, one) in bars and (group, two) in bars])
        for one, two in _pairs(bars, names)
    ]
    if sum(len(shared) for *_, shared in pairs) <= MOST_PAIRS:
        for one, two, shared in pairs:
            yield from (_comparison(bars[group, one], bars[group, two]) for group in shared)
        return
    for one, two, shared in pairs:
        rows = [bars[group, two].rows[0] for group in shared]
        if any(row["against"] == one and row["q"] is not None for row in rows):
            yield _tested(rows)
        else:
            yield sentences.consistent(
                one, two, {group: bars[group, one].total - bars[group, two].total for group in shared}
            )


def _pairs(bars: Bars, names: Sequence[str]) -> list[tuple[str, str]]:
    """Which bars are compared: those that the table pairs; if it pairs none, neighbours."""
    paired = dict.fromkeys((bar.rows[0]["against"], bar.name) for bar in bars.values() if bar.rows[0]["against"])
    known = [(one, two) for one, two in paired if one in names]
    return known or list(pairwise(names))


def _comparison(first: _Bar, second: _Bar) -> str | None:
    """Within prompts where that is known, else by their intervals."""
    paired = _paired(second.rows[0]) if second.rows[0]["against"] == first.name else None
    return paired or sentences.comparison(
        first.group, (first.name, first.total, *first.interval), (second.name, second.total, *second.interval)
    )


def _tested(rows: Sequence[Row]) -> str:
    """In which groups a bar differs from the one it is compared with."""
    verdicts: dict[str, list[str]] = {"above": [], "below": [], "not significant": [], "not tested": []}
    for row in rows:
        verdict = differs(row)
        size = "" if not verdict else f" ({row['difference']:+.4f})"
        side = "above" if (row["difference"] or 0) > 0 else "below"
        place = "not tested" if verdict is None else side if verdict else "not significant"
        verdicts[place].append(f"{row['group']}{size}")
    parts = [f"{words} in {sentences.listed(where)}" for words, where in verdicts.items() if where]
    how = f"paired by prompt (significant: q < {FALSE_DISCOVERIES} and not within rounding error)"
    return f"{rows[0]['bar']} against {rows[0]['against']}, {how}: {'; '.join(parts)}."


def _trends(bars: Bars, groups: Sequence[str], names: Sequence[str]) -> str | None:
    """Which bars rise or fall at every step from group to group."""
    by_name = {name: {group: bars[group, name].total for group in groups if (group, name) in bars} for name in names}
    if len(names) <= 2:
        sentence = " ".join(each for name in names if (each := sentences.trend(by_name[name], f"The bar of {name}")))
        return sentence or None
    ways: dict[str, list[str]] = {"rise": [], "fall": []}
    for name, values in by_name.items():
        for word, names_of in ways.items():
            if f" {word}s at every step" in (sentences.trend(values, "It") or ""):
                names_of.append(name)
    parts = [f"{sentences.listed(those)} {word}" for word, those in ways.items() if those]
    return f"From group to group, at every step (not tested): {'; '.join(parts)}." if parts else None


def _leads(bars: Sequence[_Bar]) -> str | None:
    """Which class has the largest share of the bars."""
    if len(bars) <= 2:
        sentence = " ".join(each for bar in bars if (each := sentences.lead(f"{bar.group}, {bar.name}", bar.parts)))
        return sentence or None
    leaders = [sentences.leader(bar.parts) for bar in bars]
    counts = Counter(leader for leader in leaders if leader is not None)
    if not counts:
        return None
    if len(counts) == 1 and None not in leaders:
        return f"{next(iter(counts))} has the largest share of every bar (not tested)."
    several = sum(len(bar.parts) > 1 for bar in bars)
    parts = [f"{name} in {count} of {several}" for name, count in counts.most_common()]
    return f"The class with the largest share of the bar (not tested): {sentences.listed(parts)}."


def _paired(row: Row) -> str | None:
    """How far a bar is from the one it is compared with, within prompts."""
    difference, against = row["difference"], row["against"]
    if difference is None or against is None:
        return None
    among = "by prompt" if row["pairs"] is None else f"over {sentences.counted(row['pairs'], 'prompt')}"
    size = sentences.with_interval(difference, row["difference_low"], row["difference_high"])
    sentence = f"{row['group']}: {row['bar']} minus {against}, paired {among}, is {size}"
    if row["q"] is None:
        why = BY_EDITS if _by_edits(row) else sentences.untested(row["pairs"] or 0, same=not difference)
        return f"{sentence}; {why}."
    sentence += f"; {sentences.rate(row['q'])}"
    if row["q"] >= FALSE_DISCOVERIES:
        return f"{sentence}, not significant."
    if differs(row):
        return f"{sentence}."
    floor = "" if row["floor"] is None else f" ({row['floor']:.1e})"
    return f"{sentence}, but within rounding error{floor}."


def _by_edits(row: Row) -> bool:
    """Whether a bar was not tested because the edit alone changes it: it has an interval and no q."""
    return row["difference_low"] is not None and row["q"] is None


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
