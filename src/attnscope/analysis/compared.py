"""The comparison of two sides: head by head, class by class, within prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.comparisons import Comparison
from attnscope.analysis.derived import derived_values
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, discoveries, needed, true_at_least
from attnscope.analysis.effects import Clusters, effects, unpaired_effects
from attnscope.analysis.halves import halves
from attnscope.analysis.matching import Matching, matched
from attnscope.analysis.one_way import one_way
from attnscope.analysis.ranges import bounds_of
from attnscope.analysis.ranking import reliability
from attnscope.analysis.sides import ENRICHMENT, EVERY, MASS, Side
from attnscope.analysis.spread import Bounds, cut_to_differences, mean_of_seen
from attnscope.analysis.values import Values, quantities, values_of

Floats = NDArray[np.float64]

KEYS = ("queries", "quantity", "token_class")
_SURE = (
    pl.when(pl.col("q").is_not_null())
    .then((pl.col("q") < FALSE_DISCOVERIES) & (pl.col("difference").abs() > pl.col("floor").fill_null(0)))
    .alias("sure")
)
STATISTICS = ("n", "one", "two", "difference", "low", "high", "size", "p", "q")
MORE = ("clusters", "error", "size_low", "size_high", "skew", "smallest_p", "same_q")
OF_HEADS = ("half", "other_half", "chosen", "held")
OF_CLASSES = ("median", "rising", "falling", "top_ten", "true_at_least", "tested", "chosen", "held", "same")
"""Columns that come after the others, so that earlier ones keep their places."""
_TESTS = ("p", "q", "same_q", "sure", "chosen", "held")
_TESTS_OF_HEADS = (*_TESTS, "half", "other_half")
_TESTS_OF_CLASSES = (*_TESTS, "up", "down", "true_at_least", "same")
TEN = 10
SAME = 1e-12
"""Numbers that are no further apart are the same, but for the order in which they were added up."""
TURNED_SAME = 1e-6
"""The same for what one class gains and all others lose: the two are sums over other keys, measured in float32."""
_TURNED = {"low": "high", "size_low": "size_high", "rising": "falling", "up": "down"}
"""Columns that change places where a difference is that of a class with the other sign."""
_SIGNED = ("difference", "low", "high", "size", "size_low", "size_high", "skew", "median", "half", "other_half")


@dataclass(frozen=True)
class Compared:
    """The numbers of a comparison."""

    comparison: Comparison
    method: str
    """How heads were matched."""
    heads: pl.DataFrame
    """queries, quantity, token_class, layer, head, layer_two, head_two, the statistics, floor, sure, rank.

    q is over all heads and classes of one query group and quantity; of a quantity that differs by just what a class's
    mass differs by, it is that of the class. Null for what can only go one way. floor: the mean
    effect of rounding; null if unknown. sure: q is small enough and the difference is above the floor. rank: by size of
    the difference, from 1. half, other_half: the mean difference in one half of the prompts and in the other; chosen:
    significant in the one; held: also in the other, with the same sign. Null where there are too few prompts to split.
    """
    overall: pl.DataFrame
    """queries, quantity, token_class, the statistics of the mean over heads, floor, sure, heads, up, down, reliability,
    and who carries the mean: see OF_CLASSES.

    q is over the classes of one query group and quantity. up, down: how many heads rise or fall significantly, if
    tested; true_at_least: how many of these have an effect, at 95 % confidence; tested: how many tests they were among.
    reliability: of the order of heads. median: of the heads' differences. rising, falling: the shares of heads above
    and below zero. top_ten: the share of all heads' changes, whatever their sign, that the ten largest carry. chosen,
    held: how many heads are significant in one half of the prompts, and how many of these also in the other. same: how
    many heads have no change, if the study has a margin. same_q: of the test that the difference is within it.
    """


@lru_cache(maxsize=32)
def compare(comparison: Comparison) -> Compared:
    """Compare every quantity that both sides have."""
    others = quantities(comparison.two.run)
    families = [family(comparison, *each) for each in quantities(comparison.one.run) if each in others]
    heads, overall = (pl.concat(each) for each in zip(*(each for each in families if each), strict=True))
    return Compared(comparison, matched(comparison.one, comparison.two).method, heads, overall)


def too_few(row: Mapping[str, Any]) -> bool:
    """Whether a row of `overall` has no significant head because no single one could be, with so few prompts."""
    return not row["up"] + row["down"] and needed(row["smallest_p"], row["tested"]) > 1


@lru_cache(maxsize=256)
def family(comparison: Comparison, queries: str, quantity: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """One quantity of one query group, tested together: the tables by head and by class, as in `Compared`.

    None if the sides have no class or no prompt in common.
    """
    one, two = comparison.one, comparison.two
    computed: list[tuple[pl.DataFrame, pl.DataFrame] | None] = []

    def table(which: int) -> pl.DataFrame:
        if not computed:
            computed.append(_family(comparison, queries, quantity))
        return pl.DataFrame() if computed[0] is None else computed[0][which]

    if one.run is not two.run:
        tables = [table(0), table(1)]
    else:
        sides = (one.model, one.condition, two.model, two.condition)
        about = ("family", *sides, f"{comparison.paired}", queries, quantity)
        names = ("heads", "classes")
        tables = [cached_result(one.run, (*about, name), partial(table, which)) for which, name in enumerate(names)]
    return (tables[0], tables[1]) if tables[0].width else None


def _family(comparison: Comparison, queries: str, quantity: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    pairs = value_pairs(comparison, queries, quantity)
    if not any(_prompts_of(comparison, *pair) for pair in pairs):  # measures of insertions need the base prompt too
        return None
    if all(np.isnan(each.values).all() for pair in pairs for each in pair):  # no prompt has the quantity
        return None
    matching = matched(comparison.one, comparison.two)
    if len(pairs) == 1 and pairs[0][0].token_class == EVERY:
        sides = _sides(comparison, matching, *pairs[0])
        prompts = _compared_prompts(comparison, *pairs[0])
        for turned in (False, True):
            given = _opposite(comparison, sides) if turned else sides
            name = _class_with(comparison, queries, prompts, given, TURNED_SAME if turned else SAME)
            if name is not None:
                return _as_class(comparison, pairs[0], sides, name, turned=turned)
    return _tested(comparison, matching, pairs, comparison.one.run.study.seed)


def value_pairs(comparison: Comparison, queries: str, quantity: str) -> list[tuple[Values, Values]]:
    """One quantity of both sides, for each class that both have: what is tested together."""
    first = {each.token_class: each for each in values_of(comparison.one, queries, quantity)}
    return [
        (first[each.token_class], each)
        for each in values_of(comparison.two, queries, quantity)
        if each.token_class in first
    ]


def level_as_difference(side: Side, queries: str, name: str) -> tuple[pl.DataFrame, dict[str, Any]] | None:
    """The rows of a comparison, by head and of their mean, that a quantity's level under a condition is.

    A calibrated class is its mass under the condition minus that under another one. None for other quantities.
    """
    quantity = side.run.study.quantities.get(name)
    for _, other in () if quantity is None else quantity.conditions:
        if other == side.condition or not side.run.has(side.model, other):
            continue
        comparison = Comparison("condition", replace(side, condition=other), side)
        prompts, values = derived_values(side, queries, name)
        change = values.reshape(len(values), -1)
        token_class = _class_with(comparison, queries, prompts, (np.zeros_like(change), change))
        tested = None if token_class is None else family(comparison, queries, MASS)
        if tested is not None:
            heads, overall = (each.filter(pl.col("token_class") == token_class) for each in tested)
            return heads, overall.row(0, named=True)
    return None


def class_with_change(comparison: Comparison, queries: str, prompts: NDArray[np.int64], change: Floats) -> str | None:
    """The class or set whose mass changes by just as much in every head and prompt. change: (prompts, pairs)."""
    return _class_with(comparison, queries, prompts, (np.zeros_like(change), change)) if comparison.paired else None


def _class_with(
    comparison: Comparison, queries: str, prompts: NDArray[np.int64], sides: tuple[Floats, Floats], apart: float = SAME
) -> str | None:
    """The class or set with the same differences, so that this is one difference under two names.

    apart: how far numbers may be apart.
    """
    mine = [sides[1] - sides[0]] if comparison.paired else list(sides)
    numbers, masses_of = _masses_compared(comparison, queries)
    if comparison.paired and not np.array_equal(prompts, numbers):
        missing = np.isin(numbers, prompts)
        if not np.isin(prompts, numbers).all():
            return None
        placed = np.full((len(numbers), mine[0].shape[1]), np.nan)
        placed[missing] = mine[0]
        mine = [placed]
    for name, pair in masses_of.items():
        theirs = [pair[1] - pair[0]] if comparison.paired else list(pair)
        if all(
            one.shape == two.shape and np.allclose(one, two, rtol=0, atol=apart, equal_nan=True)
            for one, two in zip(mine, theirs, strict=True)
        ):
            return name
    return None


@lru_cache(maxsize=4)
def _masses_compared(
    comparison: Comparison, queries: str
) -> tuple[NDArray[np.int64], dict[str, tuple[Floats, Floats]]]:
    """The prompts, and by class and set the masses of both sides: (prompts, pairs of heads)."""
    matching, found = matched(comparison.one, comparison.two), {}
    prompts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    for one, two in value_pairs(comparison, queries, MASS):
        sides = _sides(comparison, matching, one, two)
        found[two.token_class] = _with_zeros(comparison, *sides, one, two) if comparison.paired else sides
        prompts = _compared_prompts(comparison, one, two)
    return prompts, found


def _compared_prompts(comparison: Comparison, one: Values, two: Values) -> NDArray[np.int64]:
    """The prompts of both sides, if they are paired."""
    return np.intersect1d(one.prompts, two.prompts) if comparison.paired else two.prompts


def _as_class(
    comparison: Comparison, pair: tuple[Values, Values], sides: tuple[Floats, Floats], name: str, *, turned: bool
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """The tables of a quantity whose difference is that of a class's mass: its tests and intervals are those.

    turned: the quantity falls by what the class's mass rises by.
    """
    queries, quantity = pair[0].queries, pair[0].quantity
    tables = family(comparison, queries, MASS)
    if tables is None:
        return None
    whole = _over_heads(comparison, sides[0][:, None], sides[1][:, None])
    missing = np.isnan(sides[0]) | np.isnan(sides[1]) if comparison.paired else np.zeros((1, 1), dtype=bool)
    levels = [[mean_of_seen(np.where(missing, np.nan, each), 0) for each in sides]]
    levels.append([mean_of_seen(each, 0) for each in whole])
    untested = EVERY in one_way(comparison.one, comparison.two, queries, quantity)
    made = []
    for table, (one, two), tests in zip(tables, levels, (_TESTS_OF_HEADS, _TESTS_OF_CLASSES), strict=True):
        rows = table.filter(pl.col("token_class") == name)
        rows = (_turned(rows) if turned else rows).with_columns(
            pl.Series("one", one).fill_nan(None),
            pl.Series("two", two).fill_nan(None),
            quantity=pl.lit(quantity),
            token_class=pl.lit(EVERY),
        )
        made.append(rows.with_columns(pl.lit(None, rows.schema[each]).alias(each) for each in tests * untested))
    return made[0], made[1]


def _opposite(comparison: Comparison, sides: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Sides whose difference has the other sign: of the same prompts, or what is left of 1."""
    return (sides[1], sides[0]) if comparison.paired else (1 - sides[0], 1 - sides[1])


def _turned(table: pl.DataFrame) -> pl.DataFrame:
    """The same differences with the other sign."""
    names = {one: two for pair in _TURNED.items() for one, two in (pair, pair[::-1]) if one in table.columns}
    columns = [pl.col(names.get(name, name)) for name in table.columns]
    signed = [-each if name in _SIGNED else each for name, each in zip(table.columns, columns, strict=True)]
    return table.select(each.alias(name) for name, each in zip(table.columns, signed, strict=True))


def _prompts_of(comparison: Comparison, one: Values, two: Values) -> int:
    """In how many prompts two quantities can be compared."""
    if comparison.paired:
        return len(np.intersect1d(one.prompts, two.prompts))
    return min(len(one.prompts), len(two.prompts))


def _tested(
    comparison: Comparison, matching: Matching, family: Sequence[tuple[Values, Values]], seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    ones, twos = _stacked(comparison, matching, family)
    names = [one.token_class for one, _ in family]
    clusters = _clusters(comparison, *family[0])
    by_head = _of_heads(comparison, matching, family, (ones, twos), clusters, seed)
    of_class = by_head["token_class"].to_list()
    untested = _untested(comparison, family, ones, twos)
    of_heads = np.repeat(untested, ones.shape[2])
    by_head = _within(by_head, bounds_of(comparison.one.run, family[0][0].quantity))
    if family[0][0].quantity == MASS:
        by_head = _without_nothing(by_head)
    by_head = _without_tests(by_head, of_heads).with_columns(_SURE)
    by_head = by_head.with_columns(
        **_halves(comparison, family[0][0].quantity, ones, twos, of_heads, clusters[0], of_class, seed)
    )
    by_class = _of_classes(comparison, family, (ones, twos), _over_heads(comparison, ones, twos))
    by_class = by_class.join(carried(by_head, names), on="token_class", maintain_order="left").with_columns(
        _SURE, reliability=_reliabilities(comparison, ones, twos, clusters[0], seed)
    )
    about = {"queries": pl.lit(family[0][0].queries), "quantity": pl.lit(family[0][0].quantity)}
    where = ["layer", "head", "layer_two", "head_two"]
    return (
        by_head.with_columns(**about).select(*KEYS, *where, *STATISTICS, "floor", "sure", "rank", *MORE, *OF_HEADS),
        by_class.with_columns(**about).select(
            *KEYS, *STATISTICS, "floor", "sure", "heads", "up", "down", "reliability", *MORE, *OF_CLASSES
        ),
    )


def class_statistics(
    comparison: Comparison, family: Sequence[tuple[Values, Values]], *, median: bool = False
) -> pl.DataFrame:
    """The statistics of the classes of a family, by token_class, as `Compared.overall` has them. The sides are paired.

    median: over heads, of their differences within a prompt, instead of the mean.
    """
    ones, twos = _stacked(comparison, matched(comparison.one, comparison.two), family)
    whole = _over_heads(comparison, ones, twos)
    if median:
        whole[1] = whole[0] + _median_of_seen(twos - ones)
    return _of_classes(comparison, family, (ones, twos), whole)


def _stacked(
    comparison: Comparison, matching: Matching, family: Sequence[tuple[Values, Values]]
) -> tuple[Floats, Floats]:
    """(prompts, classes, pairs of heads) of both sides."""
    sides = [_sides(comparison, matching, one, two) for one, two in family]
    if comparison.paired and family[0][0].quantity == MASS:
        sides = [_with_zeros(comparison, *each, *pair) for each, pair in zip(sides, family, strict=True)]
    one, two = (np.stack([side[which] for side in sides], 1) for which in (0, 1))
    return one, two


def _of_classes(
    comparison: Comparison,
    family: Sequence[tuple[Values, Values]],
    sides: tuple[Floats, Floats],
    whole: Sequence[Floats],
) -> pl.DataFrame:
    """sides: (prompts, classes, pairs of heads); whole: (prompts, classes), over the heads of each."""
    quantity, run = family[0][0].quantity, comparison.one.run
    clusters, margin = _clusters(comparison, *family[0]), _margin(comparison, quantity)
    table = _statistics(comparison, whole[0], whole[1], clusters, run.study.seed, margin)
    table = table.with_columns(token_class=pl.Series([one.token_class for one, _ in family]))
    table = _within(table, bounds_of(run, quantity))
    if quantity == MASS:
        table = _without_nothing(table)
    return _without_tests(table, _untested(comparison, family, *sides))


def _median_of_seen(values: Floats) -> Floats:
    """Median over the last axis, ignoring NaN; NaN where nothing is left."""
    seen = ~np.isnan(values).all(-1)
    median = np.full(seen.shape, np.nan)
    median[seen] = np.nanmedian(values[seen], axis=-1)
    return median


def carried(by_head: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """By class: the floor, how many heads changed, and who carries the mean over heads."""
    tested = pl.col("q").is_not_null().any()
    counts = by_head.group_by("token_class", maintain_order=True).agg(
        heads=pl.len().cast(pl.Int64),
        floor=pl.col("floor").mean(),
        up=pl.when(tested).then((pl.col("sure") & (pl.col("difference") > 0)).sum().cast(pl.Int64)),
        down=pl.when(tested).then((pl.col("sure") & (pl.col("difference") < 0)).sum().cast(pl.Int64)),
        same=pl.when(pl.col("same_q").is_not_null().any()).then(
            (pl.col("same_q") < FALSE_DISCOVERIES).sum().cast(pl.Int64)
        ),
        chosen=pl.when(tested).then(_counted("chosen")),
        held=pl.when(tested).then(_counted("held")),
        median=pl.col("difference").median(),
        rising=(pl.col("difference") > 0).mean(),
        falling=(pl.col("difference") < 0).mean(),
        top_ten=pl.col("difference").abs().top_k(TEN).sum() / pl.col("difference").abs().sum(),
    )
    return counts.with_columns(
        pl.col("top_ten").fill_nan(None),
        true_at_least=pl.Series(_true_at_least(by_head, names), dtype=pl.Int64),
        tested=pl.lit(by_head["p"].count(), dtype=pl.Int64),
    )


def _reliabilities(
    comparison: Comparison, ones: Floats, twos: Floats, clusters: NDArray[np.int64] | None, seed: int
) -> pl.Series:
    """By class: of the order of heads, within prompts."""
    apart = (twos - ones).transpose(1, 0, 2) if comparison.paired else [None] * ones.shape[1]
    return pl.Series([None if each is None else reliability(each, seed, clusters) for each in apart], dtype=pl.Float64)


def _counted(flag: str) -> pl.Expr:
    """How many rows have a flag; null if none of them could have it."""
    return pl.when(pl.col(flag).is_not_null().any()).then(pl.col(flag).sum().cast(pl.Int64))


def _halves(
    comparison: Comparison,
    quantity: str,
    ones: Floats,
    twos: Floats,
    untested: NDArray[np.bool_],
    clusters: Clusters,
    of_class: Sequence[str],
    seed: int,
) -> dict[str, pl.Series]:
    """The columns OF_HEADS: of masses within prompts, where they can be tested."""
    split = None
    is_split = quantity == MASS or quantity in comparison.one.run.study.quantities
    if comparison.paired and is_split and not untested.all():
        apart = (twos - ones).reshape(len(ones), -1)
        split = halves(np.where(untested, np.nan, apart), clusters, of_class, seed)
    if split is None:
        types = (pl.Float64, pl.Float64, pl.Boolean, pl.Boolean)
        return {name: pl.Series([None] * len(untested), dtype=each) for name, each in zip(OF_HEADS, types, strict=True)}
    flags = [pl.Series(each).set(pl.Series(untested), None) for each in (split.chosen, split.held)]
    means = [pl.Series(each).fill_nan(None) for each in (split.first, split.second)]
    return dict(zip(OF_HEADS, (*means, *flags), strict=True))


def _true_at_least(by_head: pl.DataFrame, names: Sequence[str]) -> list[int | None]:
    """A lower bound on how many of the significant heads of each class have an effect; None where nothing is tested."""
    p = by_head["p"].fill_null(np.nan).to_numpy()
    bounds: list[int | None] = []
    for name in names:
        mine = (by_head["token_class"] == name).to_numpy()
        sure = by_head["sure"].fill_null(value=False).to_numpy()
        bounds.append(None if np.isnan(p[mine]).all() else true_at_least(p, mine & sure))
    return bounds


def _untested(
    comparison: Comparison, family: Sequence[tuple[Values, Values]], ones: Floats, twos: Floats
) -> NDArray[np.bool_]:
    """Classes whose test would be trivial: the edits alone change them, or one side has none of them."""
    queries, quantity = family[0][0].queries, family[0][0].quantity
    certain = one_way(comparison.one, comparison.two, queries, quantity)
    by_edits = np.array([one.token_class in certain for one, _ in family])
    if quantity != MASS:
        return by_edits
    one, two = ((np.nan_to_num(each) == 0).all((0, 2)) for each in (ones, twos))
    return np.asarray(by_edits | one | two)


def _within(table: pl.DataFrame, bounds: Bounds) -> pl.DataFrame:
    """Intervals cut to the differences that there can be. bounds: of the quantity."""
    low, high = (table[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("low", "high"))
    cut = zip(("low", "high"), cut_to_differences(low, high, bounds), strict=True)
    return table.with_columns(pl.Series(name, values).fill_nan(None) for name, values in cut)


def _without_nothing(table: pl.DataFrame) -> pl.DataFrame:
    """What neither side has any of has no interval."""
    none = (pl.col("one") == 0) & (pl.col("two") == 0)
    return table.with_columns(pl.when(~none).then(pl.col("low", "high")))


def _without_tests(table: pl.DataFrame, untested: NDArray[np.bool_]) -> pl.DataFrame:
    """Remove p and q from untested rows; q of the others is over the tested rows only."""
    p = np.where(untested, np.nan, table["p"].cast(pl.Float64).fill_null(np.nan).to_numpy())
    same = np.where(untested, np.nan, table["same_p"].fill_null(np.nan).to_numpy())
    return table.with_columns(
        pl.Series("p", p).fill_nan(None),
        pl.Series("q", discoveries(p)).fill_nan(None),
        pl.Series("same_q", discoveries(same)).fill_nan(None),
    )


def _of_heads(
    comparison: Comparison,
    matching: Matching,
    family: Sequence[tuple[Values, Values]],
    sides: tuple[Floats, Floats],
    clusters: tuple[Clusters, Clusters],
    seed: int,
) -> pl.DataFrame:
    pairs = sides[0].shape[2]
    floor = np.concatenate([_floor(comparison, matching, one, two) for one, two in family])
    flat = [each.reshape(len(each), -1) for each in sides]
    of_class = [one.token_class for one, _ in family for _ in range(pairs)]
    margin = _margin(comparison, family[0][0].quantity)
    return (
        _statistics(comparison, flat[0], flat[1], clusters, seed, margin, of_class)
        .with_columns(
            token_class=pl.Series(of_class),
            floor=pl.Series(floor).fill_nan(None),
            **_places(comparison, matching, len(family)),
        )
        .with_columns(rank=pl.col("difference").abs().rank("min", descending=True).over("token_class").cast(pl.Int64))
    )


def _clusters(comparison: Comparison, one: Values, two: Values) -> tuple[Clusters, Clusters]:
    """The cluster of each prompt of both sides; if paired, only of the prompts that both have."""
    prompts = [one.prompts, two.prompts]
    if comparison.paired:
        prompts = [np.intersect1d(one.prompts, two.prompts)] * 2
    first, second = (
        side.run.clusters(each) for side, each in zip((comparison.one, comparison.two), prompts, strict=True)
    )
    return first, second


def _sides(comparison: Comparison, matching: Matching, one: Values, two: Values) -> tuple[Floats, Floats]:
    """(prompts, pairs of heads) of both sides; if paired, only the prompts that both have."""
    first, second = one.values[:, *matching.one], two.values[:, *matching.two]
    if not comparison.paired:
        return first, second
    _, mine, theirs = np.intersect1d(one.prompts, two.prompts, return_indices=True)
    return first[mine], second[theirs]


def _with_zeros(
    comparison: Comparison, first: Floats, second: Floats, one: Values, two: Values
) -> tuple[Floats, Floats]:
    """A prompt that has a class on one side only: on the other it receives nothing, because the edits say so.

    A prompt that has it on neither side stays undefined, and is left out.
    """
    prompts = np.intersect1d(one.prompts, two.prompts)
    absent = [
        np.zeros(len(prompts), dtype=bool)
        if each.absent is None
        else each.absent[np.searchsorted(each.prompts, prompts)]
        for each in (one, two)
    ]
    alone = absent[0] != absent[1]
    return (
        np.where((alone & absent[0])[:, None], np.where(np.isnan(second), np.nan, 0.0), first),
        np.where((alone & absent[1])[:, None], np.where(np.isnan(first), np.nan, 0.0), second),
    )


def _over_heads(comparison: Comparison, ones: Floats, twos: Floats) -> list[Floats]:
    """(prompts, classes) of both sides: the mean over the heads that have the quantity on both.

    If prompts are paired, a head that lacks it in a prompt on one side does not count in that prompt on either.
    """
    never = np.isnan(ones).all(0) | np.isnan(twos).all(0)  # (classes, pairs)
    missing = [np.isnan(each) | never for each in (ones, twos)]
    if comparison.paired:
        missing = [missing[0] | missing[1]] * 2
    return [mean_of_seen(np.where(mask, np.nan, each), 2) for mask, each in zip(missing, (ones, twos), strict=True)]


def _margin(comparison: Comparison, quantity: str) -> float | None:
    """The study's margin, which is one of shares of attention."""
    if quantity == ENRICHMENT or quantity in comparison.one.run.study.quantities:
        return None
    return comparison.one.run.study.margin


def _statistics(
    comparison: Comparison,
    one: Floats,
    two: Floats,
    clusters: tuple[Clusters, Clusters],
    seed: int,
    margin: float | None,
    pools: Sequence[str] | None = None,
) -> pl.DataFrame:
    """The statistics of (prompts, columns) of both sides, one row per column. pools: as in `effects`."""
    if comparison.paired:
        missing = np.isnan(one) | np.isnan(two)  # both means are over the compared prompts
        one, two = np.where(missing, np.nan, one), np.where(missing, np.nan, two)
        result = effects(two - one, clusters=clusters[0], pools=pools, seed=seed, margin=margin)
    else:
        result = unpaired_effects(one, two, clusters=clusters, pools=pools, seed=seed, margin=margin)
    table = pl.DataFrame(
        {
            "n": result.n,
            "clusters": result.clusters,
            "one": mean_of_seen(one, 0),
            "two": mean_of_seen(two, 0),
            "difference": result.mean,
            "error": result.error,
            "low": result.low,
            "high": result.high,
            "size": result.size,
            "size_low": result.size_low,
            "size_high": result.size_high,
            "skew": result.skew,
            "p": result.p,
            "q": result.q,
            "smallest_p": result.smallest,
            "same_p": result.same,
        }
    )
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def _places(comparison: Comparison, matching: Matching, times: int) -> dict[str, pl.Series]:
    columns = {}
    for side, places, end in ((comparison.one, matching.one, ""), (comparison.two, matching.two, "_two")):
        numbers = (np.asarray(side.run.layers(side.model)), np.asarray(side.run.heads(side.model)))
        for name, of_axis, place in zip(("layer", "head"), numbers, places, strict=True):
            columns[f"{name}{end}"] = pl.Series(np.tile(of_axis[place], times), dtype=pl.Int64)
    return columns


def _floor(comparison: Comparison, matching: Matching, one: Values, two: Values) -> Floats:
    """Per pair of heads: the mean effect of rounding on both sides; NaN where unknown."""
    total = np.zeros(len(matching.one[0]))
    for side, places, values in ((comparison.one, matching.one, one), (comparison.two, matching.two, two)):
        noise = side.run.noise(side.model, values.queries)
        total = total + (np.nan if noise is None or values.per_mass is None else (noise * values.per_mass)[places])
    return total
