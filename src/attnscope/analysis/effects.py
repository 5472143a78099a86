"""Differences paired by prompt, thousands at once: their size, their uncertainty, and the false discovery rate.

Prompts are the unit, or clusters of prompts that are not independent. For each column (a head, a class, a layer) of
differences within prompts: the mean, its interval and p by a studentised bootstrap, its size in standard deviations
with an interval, and the false discovery rate over all columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.bootstrap import Sample, bootstrapped, estimate_of, smallest_p
from attnscope.analysis.discoveries import discoveries
from attnscope.analysis.spread import mean_of_seen
from attnscope.study.independence import testable

Floats = NDArray[np.float64]
Clusters = NDArray[np.int64]

ENOUGH = 20  # clusters; a draw then misses all of a column's less than once in a million times
SKEWED = 1.5  # differences with more skew than this are called skewed


@dataclass(frozen=True)
class Effects:
    """One number per column in each field; NaN where there are too few clusters, or few have most of the prompts."""

    n: NDArray[np.int64]
    """Prompts."""
    clusters: NDArray[np.int64]
    """The units: clusters of prompts, or the prompts themselves."""
    mean: Floats
    error: Floats
    """The standard error of the mean, over clusters."""
    low: Floats
    high: Floats
    size: Floats
    """The mean in standard deviations of the differences."""
    size_low: Floats
    size_high: Floats
    skew: Floats
    """Of the clusters' differences."""
    p: Floats
    q: Floats
    smallest: Floats
    """The smallest p that so many clusters can have."""
    same: Floats
    """P of the test that the difference is within the margin; NaN without a margin."""


def effects(
    differences: Floats,
    *,
    clusters: Clusters | None = None,
    pools: Sequence[Hashable] | None = None,
    seed: int = 0,
    margin: float | None = None,
) -> Effects:
    """Effects of differences (prompts, columns); a prompt without a pair (NaN) is left out of that column only.

    clusters: the cluster of each prompt. pools: the kind of each column, such as its class; columns of a kind show what
    tails to expect of one another. margin: differences below it count as none.
    """
    defined = ~np.isnan(differences)
    groups = []
    for prompts, which in _by_prompts(defined):
        values = differences[prompts][:, which]
        if len(values):
            mine = None if clusters is None else clusters[prompts]
            groups.append(_Group(which, [Sample.of(values, mine)], _deviation([values]), _shape([values])))
    return _effects(defined.sum(0), groups, pools, seed, margin)


def unpaired_effects(
    one: Floats,
    two: Floats,
    *,
    clusters: tuple[Clusters, Clusters] | None = None,
    pools: Sequence[Hashable] | None = None,
    seed: int = 0,
    margin: float | None = None,
) -> Effects:
    """Effects between two sets of prompts (prompts, columns): the second mean minus the first.

    Each set has its own spread, as in Welch's test; the size is in pooled standard deviations; n and clusters are those
    of the smaller set.
    """
    defined = [~np.isnan(each) for each in (one, two)]
    groups = []
    for prompts, which in _same_prompts(np.concatenate(defined)):
        rows = prompts[: len(one)], prompts[len(one) :]
        sets = [values[mine][:, which] for values, mine in zip((one, two), rows, strict=True)]
        if all(map(len, sets)):
            given = (None, None) if clusters is None else [c[mine] for c, mine in zip(clusters, rows, strict=True)]
            samples = [Sample.of(values, each) for values, each in zip(sets, given, strict=True)]
            groups.append(_Group(which, samples, _deviation(sets), _shape(sets)))
    return _effects(np.minimum(defined[0].sum(0), defined[1].sum(0)), groups, pools, seed, margin)


@dataclass(frozen=True)
class _Group:
    """Columns of the same prompts. deviation: of single prompts, for sizes."""

    which: NDArray[np.int64]
    samples: list[Sample]
    deviation: Floats
    shape: tuple[Floats, Floats]
    """The skewness and the kurtosis (3 if normal) of single prompts."""

    def of(self, columns: NDArray[np.bool_]) -> _Group:
        """Only some of all columns."""
        mine = np.flatnonzero(columns[self.which])
        shape = self.shape[0][mine], self.shape[1][mine]
        return _Group(self.which[mine], [each.columns(mine) for each in self.samples], self.deviation[mine], shape)

    @property
    def testable(self) -> NDArray[np.int64]:
        """Which of its columns have clusters enough, the prompts not being in a few of them."""
        return np.flatnonzero(np.all([testable(each.sizes) for each in self.samples], axis=0))


def _effects(
    n: NDArray[np.int64], groups: list[_Group], pools: Sequence[Hashable] | None, seed: int, margin: float | None
) -> Effects:
    names = ("mean", "error", "low", "high", "size", "size_low", "size_high", "skew", "p", "smallest", "same")
    results = {name: np.full(len(n), np.nan) for name in names}
    results["clusters"] = np.zeros(len(n))
    for group in groups:
        _describe(results, group)
    errors = np.concatenate([np.zeros(0), *(estimate_of(group.samples)[1] for group in groups)])
    typical = float(np.median(errors[errors > 0])) if (errors > 0).any() else 0.0
    for columns in _of_each(pools, len(n)):
        _test(results, [group.of(columns) for group in groups], seed, typical, margin)
    clusters = results.pop("clusters").astype(np.int64)
    return Effects(n=n.astype(np.int64), clusters=clusters, q=discoveries(results["p"]), **results)


def _of_each(pools: Sequence[Hashable] | None, columns: int) -> Iterator[NDArray[np.bool_]]:
    """Which columns are in each of the pools; all in one if none are given."""
    kinds = [None] * columns if pools is None else pools
    for kind in dict.fromkeys(kinds):
        yield np.array([each == kind for each in kinds])


def _describe(results: dict[str, Floats], group: _Group) -> None:
    """What needs no test."""
    which, samples = group.which, group.samples
    count = np.min([each.count for each in samples], axis=0)
    mean, error = estimate_of(samples)
    size = np.full(len(count), np.nan)
    size[count > 1] = _over_spread(mean, group.deviation)[count > 1]
    for name, values in (("mean", mean), ("error", error), ("clusters", count), ("size", size)):
        results[name][which] = values
    results["smallest"][which] = smallest_p(samples)
    skews = np.stack([each.skew for each in samples])
    results["skew"][which] = np.take_along_axis(skews, np.abs(skews).argmax(0)[None], 0)[0]


def _test(
    results: dict[str, Floats], groups: Sequence[_Group], seed: int, typical: float, margin: float | None
) -> None:
    """Test the columns of one pool."""
    enough = [(group, group.testable) for group in groups]
    enough = [(group, columns) for group, columns in enough if len(columns)]
    samples = [[each.columns(columns) for each in group.samples] for group, columns in enough]
    every = bootstrapped(samples, seed=seed, typical=typical, margin=margin)
    for (group, some), tested in zip(enough, every, strict=True):
        columns = group.which[some]
        for name in ("low", "high", "p", "same"):
            results[name][columns] = getattr(tested, name)
        for name in ("low", "high"):
            reach = getattr(tested, name) - results["mean"][columns]
            size = results["size"][columns]
            shape = group.shape[0][some], group.shape[1][some]
            results[f"size_{name}"][columns] = _end_of_size(size, reach, group.deviation[some], shape)


def _end_of_size(size: Floats, reach: Floats, deviation: Floats, shape: tuple[Floats, Floats]) -> Floats:
    """An end of the interval of a size. reach: of the mean's interval on that side. shape: skewness and kurtosis.

    The deviation is estimated too. To first order, the squared error of a mean in deviations is that of the mean, in
    deviations, times 1 - size * skewness + size^2 (kurtosis - 1) / 4; with normal values, 1 + size^2 / 2.
    """
    skewness, kurtosis = shape
    with np.errstate(invalid="ignore", divide="ignore"):
        wider = 1 - size * skewness + size**2 * (np.fmax(kurtosis, 3.0) - 1) / 4
        end: Floats = size + reach / deviation * np.sqrt(np.fmax(wider, 1.0))
    return np.where(deviation > 0, end, np.nan)


def _deviation(sets: list[Floats]) -> Floats:
    """The standard deviation of single prompts, pooled over the sets; 0 where all are the same."""
    freedom = sum((~np.isnan(values)).sum(0) - 1 for values in sets)
    total = np.zeros(sets[0].shape[1])
    varies = np.zeros(sets[0].shape[1], dtype=bool)
    for values in sets:
        apart = values - mean_of_seen(values, 0)
        total += np.nansum(apart**2, axis=0)
        varies |= np.nanmax(values, 0) > np.nanmin(values, 0)
    pooled: Floats = np.sqrt(np.divide(total, freedom, out=np.zeros(len(total)), where=np.asarray(freedom) > 0))
    return np.where(varies, pooled, 0.0)


def _shape(sets: list[Floats]) -> tuple[Floats, Floats]:
    """The skewness and kurtosis of single prompts, pooled over the sets; those of a normal where nothing varies."""
    apart = np.concatenate([values - mean_of_seen(values, 0) for values in sets])
    squares, cubes, fourths = (mean_of_seen(apart**power, 0) for power in (2, 3, 4))
    varies = squares > 0
    skewness = np.divide(cubes, squares**1.5, out=np.zeros(len(squares)), where=varies)
    kurtosis = np.divide(fourths, squares**2, out=np.full(len(squares), 3.0), where=varies)
    return skewness, kurtosis


def _over_spread(mean: Floats, spread: Floats) -> Floats:
    """The mean over the spread; NaN where the mean is not zero but the spread is."""
    size: Floats = np.divide(mean, spread, out=np.where(mean == 0, 0.0, np.nan), where=spread > 0)
    return size


def _by_prompts(defined: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Columns that most prompts have, all together; the others grouped by the prompts they have."""
    prompts, count = len(defined), defined.sum(0)
    full = (count >= prompts / 2) & (count >= ENOUGH)
    if full.any():
        yield np.ones(prompts, dtype=bool), np.flatnonzero(full)
    others = np.flatnonzero(~full)
    for rows, which in _same_prompts(defined[:, others]):
        yield rows, others[which]


def _same_prompts(defined: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Columns grouped by the prompts they have."""
    patterns, which = np.unique(defined, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        yield patterns[:, number], np.flatnonzero(which.ravel() == number)
