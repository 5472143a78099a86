"""How large a measure is on one side, mean over heads, and how far it goes from a series' first group to its last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.compared import level_as_difference
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, needed
from attnscope.analysis.effects import effects
from attnscope.analysis.means import interval_of
from attnscope.analysis.measures import measure_values
from attnscope.analysis.ranges import bounds_shown
from attnscope.analysis.sides import Side, masses
from attnscope.analysis.spread import cut_to_differences, mean_of_seen

Floats = NDArray[np.float64]

STRONGEST = 3
"""How many heads a level names."""


@dataclass(frozen=True)
class Level:
    """A measure's mean over heads and prompts. None where something can't be said."""

    side: Side
    queries: str
    measure: str
    value: float
    low: float | None
    high: float | None
    same: bool
    """Whether every prompt has this value."""
    n: int
    clusters: int
    heads: int
    p: float | None
    """Of the test against `null`; None if nothing was tested."""
    null: float | None
    above: int | None
    """Heads that are significantly above `null`."""
    below: int | None
    can_tell: bool
    """Whether there are prompts enough for a single head to be significant."""
    uniform: float | None
    """What uniform attention would give, of a class."""
    strongest: tuple[tuple[int, int, float], ...]
    """Layer, head and value of the heads that have most of it, chosen on the same prompts."""
    prompts: tuple[int, ...]
    """The numbers of the prompts that it is over."""


@dataclass(frozen=True)
class Reach:
    """How many prompts have a group of a series, of those that have the group that most have."""

    prompts: int
    most: int


@dataclass(frozen=True)
class Course:
    """From the first group of a series to the last that at least half of the prompts reach, in those that have both."""

    first: Level
    last: Level
    difference: float
    low: float | None
    high: float | None
    n: int
    clusters: int
    p: float | None
    """None for what changes along the series whatever a head does: later queries see more tokens."""
    reach: tuple[Reach | None, Reach | None]
    """For each end that is not the series' own: how many prompts have it, as fewer than half have those beyond it."""


def level(side: Side, queries: str, measure: str, only: Sequence[int] | None = None) -> Level | None:
    """The level of a class, set or quantity; None if no prompt has it. only: the numbers of the prompts it is over."""
    run = side.run
    quantity = run.study.quantities.get(measure)
    null = None if quantity is None else quantity.null
    prompts, values = _values(side, queries, measure)
    chosen = np.ones(len(prompts), dtype=bool) if only is None else np.isin(prompts, only)
    prompts, values = prompts[chosen], values[chosen]
    if np.isnan(values).all():
        return None
    clusters = run.clusters(prompts)
    of_prompts = _over_heads(values)
    whole = effects(of_prompts - (null or 0.0), clusters=clusters, seed=run.study.seed)
    bounds = bounds_shown(run, [measure], enrichment=False)
    low, high = interval_of(of_prompts[:, 0], clusters, bounds=bounds, null=null, seed=run.study.seed)
    p = None if null is None else _known(whole.p[0])
    heads = None if null is None else _heads(values - null, clusters, run.study.seed)
    paired = level_as_difference(side, queries, measure) if only is None else None
    if paired is not None:
        low, high, p = (paired[1][name] for name in ("low", "high", "p"))
        heads = _compared_heads(*paired)
    if quantity is not None and side.condition in {name for _, name in quantity.conditions}:
        p = heads = None  # 0 by construction
    return Level(
        side=side,
        queries=queries,
        measure=measure,
        value=float(whole.mean[0]) + (null or 0.0),
        low=low,
        high=high,
        same=bool(whole.error[0] == 0),
        n=int(whole.n[0]),
        clusters=int(whole.clusters[0]),
        heads=values.shape[1] * values.shape[2],
        p=p,
        null=null,
        above=None if heads is None else heads.above,
        below=None if heads is None else heads.below,
        can_tell=heads is None or heads.can_tell,
        uniform=_uniform(side, queries, measure, prompts),
        strongest=_strongest(side, mean_of_seen(values, 0)),
        prompts=tuple(prompts[~np.isnan(of_prompts[:, 0])].tolist()),
    )


def course(side: Side, series: str, measure: str) -> Course | None:
    """The first and the last group of a series; None if no two groups can be compared."""
    run = side.run
    quantity = run.study.quantities.get(measure)
    names = [group.name for group in run.series[series]]
    known = {name: _values(side, name, measure) for name in names}
    counts = {name: int((~np.isnan(_over_heads(values)[:, 0])).sum()) for name, (_, values) in known.items()}
    reached = [name for name in names if counts[name] and 2 * counts[name] >= max(counts.values())]
    if len(reached) < 2:
        return None
    first, last = reached[0], reached[-1]
    reach = [Reach(counts[name], max(counts.values())) for name in (first, last)]
    prompts, mine, theirs = np.intersect1d(known[first][0], known[last][0], return_indices=True)
    apart = _over_heads(known[last][1][theirs]) - _over_heads(known[first][1][mine])
    both = prompts[~np.isnan(apart[:, 0])].tolist()
    levels = [level(side, name, measure, both) for name in (first, last)]
    if levels[0] is None or levels[1] is None or np.isnan(apart).all():
        return None
    change = effects(apart, clusters=run.clusters(prompts), seed=run.study.seed)
    is_tested = quantity is not None and quantity.relative
    low, high = cut_to_differences(change.low, change.high, bounds_shown(run, [measure], enrichment=False))
    return Course(
        first=levels[0],
        last=levels[1],
        difference=float(change.mean[0]),
        low=_known(low[0]),
        high=_known(high[0]),
        n=int(change.n[0]),
        clusters=int(change.clusters[0]),
        p=_known(change.p[0]) if is_tested else None,
        reach=(None if first == names[0] else reach[0], None if last == names[-1] else reach[1]),
    )


@dataclass(frozen=True)
class _Heads:
    """How many heads are significantly above and below a null, and whether there are prompts enough for one alone."""

    above: int
    below: int
    can_tell: bool


def _heads(apart: Floats, clusters: NDArray[np.int64], seed: int) -> _Heads:
    """apart: (prompts, layers, heads), minus the null."""
    found = effects(apart.reshape(len(apart), -1), clusters=clusters, seed=seed)
    sure, tested = found.q < FALSE_DISCOVERIES, int((~np.isnan(found.p)).sum())
    can_tell = bool(tested) and needed(float(np.nanmin(found.smallest)), tested) == 1
    return _Heads(int((sure & (found.mean > 0)).sum()), int((sure & (found.mean < 0)).sum()), can_tell)


def _compared_heads(heads: pl.DataFrame, overall: Mapping[str, Any]) -> _Heads | None:
    """The same, of the rows of a comparison; None where it is not tested."""
    if heads["q"].is_null().all():
        return None
    above, below = (
        int(heads.filter(pl.col("q") < FALSE_DISCOVERIES, pl.col("difference") * way > 0).height) for way in (1, -1)
    )
    return _Heads(above, below, needed(overall["smallest_p"], overall["tested"]) == 1)


def _values(side: Side, queries: str, measure: str) -> tuple[NDArray[np.int64], Floats]:
    numbers = measure_values(side, queries, [measure], enrichment=False, where="headline: measure")
    return numbers.prompts, numbers.values


def _over_heads(values: Floats) -> Floats:
    """(prompts, 1)."""
    return mean_of_seen(values, (1, 2))[:, None]


def _strongest(side: Side, by_head: Floats) -> tuple[tuple[int, int, float], ...]:
    """by_head: (layers, heads)."""
    order = np.argsort(-np.nan_to_num(by_head, nan=-np.inf), axis=None, kind="stable")[:STRONGEST]
    places = [np.unravel_index(each, by_head.shape) for each in order]
    layers, heads = side.run.layers(side.model), side.run.heads(side.model)
    return tuple((layers[row], heads[column], float(by_head[row, column])) for row, column in places)


def _uniform(side: Side, queries: str, measure: str, prompts: NDArray[np.int64]) -> float | None:
    if measure not in side.run.token_sets:
        return None
    arrays = masses(side.run, side.model, side.condition, queries)
    expected = arrays.of([measure])[1][np.isin(arrays.prompts, prompts)]
    return _known(mean_of_seen(expected, (0, 1, 2)))


def _known(value: float | np.floating | Floats) -> float | None:
    return None if np.isnan(value) else float(value)
