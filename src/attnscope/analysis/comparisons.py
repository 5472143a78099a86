"""What a run lets one compare, and the comparison itself: head by head, class by class, within prompts.

Conditions are compared with the base prompt, a control with what it controls for, models with the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached
from attnscope.analysis.effects import FALSE_DISCOVERIES, discoveries, effects, unpaired_effects
from attnscope.analysis.matching import Matching, matched, weights_of
from attnscope.analysis.ranking import reliability
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS, ONE_WAY, Side, Values, base_condition, quantities, values_of
from attnscope.analysis.spread import mean_of_seen

Kind = Literal["condition", "control", "model", "run"]
Numbers = NDArray[np.float64]

KEYS = ("queries", "quantity", "token_class")
_SURE = (
    pl.when(pl.col("q").is_not_null())
    .then((pl.col("q") < FALSE_DISCOVERIES) & (pl.col("difference").abs() > pl.col("floor").fill_null(0)))
    .alias("sure")
)
STATISTICS = ("n", "one", "two", "difference", "low", "high", "size", "p", "q")


@dataclass(frozen=True)
class Comparison:
    """Side two minus side one. paired: prompts of one number are the same prompt. thing: what two runs differ in."""

    kind: Kind
    one: Side
    two: Side
    paired: bool = True
    thing: str = ""

    @property
    def name(self) -> str:
        """Such as 'filler minus none, SmolLM2-135M' or 'tuned minus base, none'."""
        one, two = self.one, self.two
        if self.kind == "run":
            names = zip((two, one), reversed(self.sides), strict=True)
            return " minus ".join(f"{side.model}, {side.condition} ({name})" for side, name in names)
        if self.kind == "model":
            return f"{two.model} minus {one.model}, {one.condition}"
        return f"{two.condition} minus {one.condition}, {one.model}"

    @property
    def prompts(self) -> int:
        """How many prompts there are to compare: that both have, or of the smaller set."""
        return len(self.prompts_of[0] & self.prompts_of[1]) if self.paired else min(map(len, self.prompts_of))

    @property
    def prompts_of(self) -> tuple[set[int], set[int]]:
        """The numbers of both arms' prompts."""
        one, two = (side.run.prompts(side.model, side.condition) for side in (self.one, self.two))
        return one, two

    @property
    def inserts(self) -> bool:
        """Whether something is inserted in one of the arms, or in both."""
        return self.one.inserts or self.two.inserts

    @property
    def same_base(self) -> bool:
        """Whether both arms edit the same prompts of the same model, so that a change splits into its parts."""
        return self.kind != "model" and self.paired and weights_of(self.one) == weights_of(self.two)

    @property
    def sides(self) -> tuple[str, str]:
        """What tells the arms apart, in a word or two."""
        one, two = self.one, self.two
        if self.kind == "run":
            return _told_apart(one.run.path, two.run.path)
        return (one.model, two.model) if self.kind == "model" else (one.condition, two.condition)


@dataclass(frozen=True)
class Compared:
    """The numbers of a comparison."""

    comparison: Comparison
    method: str
    """How heads were matched."""
    heads: pl.DataFrame
    """queries, quantity, token_class, layer, head, layer_two, head_two, the statistics, floor, sure, rank.

    q is over all heads and classes of one query group and quantity; none for what can only go one way. floor: what
    rounding makes on average; null if not known. sure: q is small enough and the difference above the floor. rank: by
    size of the difference, from 1.
    """
    overall: pl.DataFrame
    """queries, quantity, token_class, the statistics of the mean over heads, floor, sure, heads, up, down, reliability.

    q is over the classes of one query group and quantity. up, down: how many heads are surely so, if that was tested.
    reliability: of the heads' order.
    """


def _told_apart(one: Path, two: Path) -> tuple[str, str]:
    """The ends of two paths, as much of them as tells them apart."""
    parts = [path.resolve().parts for path in (one, two)]
    for count in range(1, 1 + max(map(len, parts))):
        first, second = ("/".join(each[-count:]) for each in parts)
        if first != second:
            return first, second
    return f"{one}", f"{two} again"


def comparisons(run: Run) -> list[Comparison]:
    """All that the study implies, in its order; arms that have no prompt in common are not compared."""
    return [each for each in (*_of_conditions(run), *_of_models(run)) if each.prompts]


def _of_conditions(run: Run) -> Iterator[Comparison]:
    base = base_condition(run)
    edits = [name for name in run.conditions if not run.study.condition(name).is_base]
    for model in run.models:
        if base is not None:
            yield from (Comparison("condition", Side(run, model, base), Side(run, model, name)) for name in edits)
        for name in edits:
            for controlled in run.study.condition(name).matched:
                if controlled in edits:
                    yield Comparison("control", Side(run, model, name), Side(run, model, controlled))


def _of_models(run: Run) -> Iterator[Comparison]:
    first, *others = run.models
    for other in others:
        yield from (Comparison("model", Side(run, first, name), Side(run, other, name)) for name in run.conditions)


@lru_cache(maxsize=32)
def compare(comparison: Comparison) -> Compared:
    """Every quantity that both arms have."""
    others = quantities(comparison.two.run)
    families = [family(comparison, *each) for each in quantities(comparison.one.run) if each in others]
    heads, overall = (pl.concat(each) for each in zip(*(each for each in families if each), strict=True))
    return Compared(comparison, matched(comparison.one, comparison.two).method, heads, overall)


@lru_cache(maxsize=256)
def family(comparison: Comparison, queries: str, quantity: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """By head and by class, as `Compared` has them: one quantity of one query group, which is tested together.

    None if there is no class, or no prompt, that both arms have.
    """
    one, two = comparison.one, comparison.two
    found: list[tuple[pl.DataFrame, pl.DataFrame] | None] = []

    def part(which: int) -> pl.DataFrame:
        if not found:
            found.append(_family(comparison, queries, quantity))
        return pl.DataFrame() if found[0] is None else found[0][which]

    if one.run is not two.run:
        made = [part(0), part(1)]
    else:
        sides = (one.model, one.condition, two.model, two.condition)
        about = ("family", *sides, f"{comparison.paired}", queries, quantity)
        made = [
            cached(one.run, (*about, name), partial(part, which)) for which, name in enumerate(("heads", "classes"))
        ]
    return (made[0], made[1]) if made[0].width else None


def _family(comparison: Comparison, queries: str, quantity: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    first = {each.token_class: each for each in values_of(comparison.one, queries, quantity)}
    pairs = [
        (first[each.token_class], each)
        for each in values_of(comparison.two, queries, quantity)
        if each.token_class in first
    ]
    if not any(_prompts_of(comparison, *pair) for pair in pairs):  # what an insertion does needs the base prompt too
        return None
    matching = matched(comparison.one, comparison.two)
    return _tested(comparison, matching, pairs, comparison.one.run.study.seed)


def _prompts_of(comparison: Comparison, one: Values, two: Values) -> int:
    """How many prompts there are to compare two quantities in."""
    if comparison.paired:
        return len(np.intersect1d(one.prompts, two.prompts))
    return min(len(one.prompts), len(two.prompts))


def _tested(
    comparison: Comparison, matching: Matching, family: Sequence[tuple[Values, Values]], seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    sides = [_sides(comparison, matching, one, two) for one, two in family]
    ones, twos = (np.stack([side[which] for side in sides], 1) for which in (0, 1))  # (prompts, classes, pairs)
    names = [one.token_class for one, _ in family]
    by_head = _of_heads(comparison, matching, family, (ones, twos), seed)
    whole = [_over_heads(ones, twos, each) for each in (ones, twos)]
    by_class = _statistics(comparison, whole[0], whole[1], seed).with_columns(token_class=pl.Series(names))
    untested = _untested(comparison, family[0][0].quantity, ones, twos)
    by_head = _without_tests(by_head, np.repeat(untested, ones.shape[2])).with_columns(_SURE)
    by_class = _without_tests(by_class, untested)
    tested = pl.col("q").is_not_null().any()
    counts = by_head.group_by("token_class", maintain_order=True).agg(
        heads=pl.len().cast(pl.Int64),
        floor=pl.col("floor").mean(),
        up=pl.when(tested).then((pl.col("sure") & (pl.col("difference") > 0)).sum().cast(pl.Int64)),
        down=pl.when(tested).then((pl.col("sure") & (pl.col("difference") < 0)).sum().cast(pl.Int64)),
    )
    trusted = [reliability(twos[:, c] - ones[:, c], seed) if comparison.paired else None for c in range(len(names))]
    by_class = by_class.join(counts, on="token_class", maintain_order="left").with_columns(
        _SURE, reliability=pl.Series(trusted, dtype=pl.Float64)
    )
    about = {"queries": pl.lit(family[0][0].queries), "quantity": pl.lit(family[0][0].quantity)}
    where = ["layer", "head", "layer_two", "head_two"]
    return (
        by_head.with_columns(**about).select(*KEYS, *where, *STATISTICS, "floor", "sure", "rank"),
        by_class.with_columns(**about).select(
            *KEYS, *STATISTICS, "floor", "sure", "heads", "up", "down", "reliability"
        ),
    )


def _untested(comparison: Comparison, quantity: str, ones: Numbers, twos: Numbers) -> NDArray[np.bool_]:
    """Classes whose difference would always be found: what can only go one way, and what one side has nothing of."""
    if quantity in ONE_WAY and comparison.one.inserts != comparison.two.inserts:
        return np.ones(ones.shape[1], dtype=bool)
    if quantity != MASS:
        return np.zeros(ones.shape[1], dtype=bool)
    one, two = ((each == 0).all((0, 2)) for each in (ones, twos))
    return np.asarray(one | two)


def _without_tests(made: pl.DataFrame, untested: NDArray[np.bool_]) -> pl.DataFrame:
    """Rows that are not tested have no p and q, and the others' q is among those that are."""
    p = np.where(untested, np.nan, made["p"].cast(pl.Float64).fill_null(np.nan).to_numpy())
    return made.with_columns(pl.Series("p", p).fill_nan(None), pl.Series("q", discoveries(p)).fill_nan(None))


def _of_heads(
    comparison: Comparison,
    matching: Matching,
    family: Sequence[tuple[Values, Values]],
    sides: tuple[Numbers, Numbers],
    seed: int,
) -> pl.DataFrame:
    pairs = sides[0].shape[2]
    floor = np.concatenate([_floor(comparison, matching, one, two) for one, two in family])
    flat = [each.reshape(len(each), -1) for each in sides]
    return (
        _statistics(comparison, flat[0], flat[1], seed)
        .with_columns(
            token_class=pl.Series(np.repeat([one.token_class for one, _ in family], pairs)),
            floor=pl.Series(floor).fill_nan(None),
            **_places(comparison, matching, len(family)),
        )
        .with_columns(
            _SURE,
            rank=pl.col("difference").abs().rank("min", descending=True).over("token_class").cast(pl.Int64),
        )
    )


def _sides(comparison: Comparison, matching: Matching, one: Values, two: Values) -> tuple[Numbers, Numbers]:
    """(prompts, pairs of heads) of both arms; where paired, of the prompts that both have."""
    first, second = one.values[:, *matching.one], two.values[:, *matching.two]
    if not comparison.paired:
        return first, second
    _, mine, theirs = np.intersect1d(one.prompts, two.prompts, return_indices=True)
    return first[mine], second[theirs]


def _over_heads(ones: Numbers, twos: Numbers, values: Numbers) -> Numbers:
    """(prompts, classes): the mean over the heads that have the quantity in any prompt of both arms."""
    missing = [np.isnan(each).all(0) for each in (ones, twos)]
    counted = np.where(missing[0] | missing[1], 0.0, 1.0)  # (classes, pairs)
    heads = counted.sum(1)
    total = np.where(counted > 0, values, 0.0).sum(2)
    found: Numbers = np.divide(total, heads, out=np.full(total.shape, np.nan), where=heads > 0)
    return found


def _statistics(comparison: Comparison, one: Numbers, two: Numbers, seed: int) -> pl.DataFrame:
    """Of (prompts, columns) of both arms, a row a column."""
    if comparison.paired:  # both means are of the prompts that are compared
        missing = np.isnan(one) | np.isnan(two)
        one, two = np.where(missing, np.nan, one), np.where(missing, np.nan, two)
    found = effects(two - one, seed) if comparison.paired else unpaired_effects(one, two, seed)
    made = pl.DataFrame(
        {
            "n": found.n,
            "one": mean_of_seen(one, 0),
            "two": mean_of_seen(two, 0),
            "difference": found.mean,
            "low": found.low,
            "high": found.high,
            "size": found.size,
            "p": found.p,
            "q": found.q,
        }
    )
    return made.with_columns(pl.col(pl.Float64).fill_nan(None))


def _places(comparison: Comparison, matching: Matching, times: int) -> dict[str, pl.Series]:
    made = {}
    for side, places, end in ((comparison.one, matching.one, ""), (comparison.two, matching.two, "_two")):
        numbers = (np.asarray(side.run.layers(side.model)), np.asarray(side.run.heads(side.model)))
        for name, of_axis, place in zip(("layer", "head"), numbers, places, strict=True):
            made[f"{name}{end}"] = pl.Series(np.tile(of_axis[place], times), dtype=pl.Int64)
    return made


def _floor(comparison: Comparison, matching: Matching, one: Values, two: Values) -> Numbers:
    """By pair of heads: what the rounding of both arms makes on average; NaN where that is not known."""
    total = np.zeros(len(matching.one[0]))
    for side, places, held in ((comparison.one, matching.one, one), (comparison.two, matching.two, two)):
        noise = side.run.noise(side.model, held.queries)
        total = total + (np.nan if noise is None or held.per_mass is None else (noise * held.per_mass)[places])
    return total
