"""Differences paired by prompt, thousands at once: their size, their uncertainty, and the false discovery rate.

The prompt is the unit. For each column (a head, a class, a layer) of differences within prompts: the mean with a
bootstrap interval (percentiles, widened for few prompts), the p of a sign-flip permutation test, the effect size in
standard deviations, and the false discovery rate of Benjamini and Hochberg over all columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from attnscope.analysis.spread import CONFIDENCE, mean_of_seen

Floats = NDArray[np.float64]

FALSE_DISCOVERIES = 0.05  # effects with a smaller q are called significant
RESAMPLES = 2999
FLIPS = 9999
MOST_FLIPS = 1_000_000
FEWEST = 6  # prompts; with five, p can't be below 0.05, and a bootstrap has little to draw from
TOGETHER = 1024  # columns resampled at once
FEW = 600  # up to this many prompts, random signs are cached
ENOUGH = 20  # prompts; a resample then misses all prompts of a column less than once in a million times


@dataclass(frozen=True)
class Effects:
    """One number per column in each field; NaN where there are too few prompts."""

    n: NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats
    size: Floats
    """The mean in standard deviations of the differences."""
    p: Floats
    q: Floats


def effects(differences: Floats, seed: int = 0) -> Effects:
    """Effects of differences (prompts, columns); a prompt without a pair (NaN) is left out of that column only."""
    columns = differences.shape[1]
    results = {name: np.full(columns, np.nan) for name in ("mean", "low", "high", "size", "p")}
    defined = ~np.isnan(differences)
    for prompts, which in _by_prompts(defined):
        values = differences[prompts][:, which]
        if not len(values):
            continue
        n = (~np.isnan(values)).sum(0)
        results["mean"][which] = mean_of_seen(values, 0)
        if n.min() > 1:
            results["size"][which] = _size(values)
        if n.min() >= FEWEST:
            results["p"][which] = sign_flip_p(values, seed=seed, among=columns)
            results["low"][which], results["high"][which] = interval_of_mean(values, seed=seed)
    return Effects(n=defined.sum(0).astype(np.int64), q=discoveries(results["p"]), **results)


def unpaired_effects(one: Floats, two: Floats, seed: int = 0) -> Effects:
    """Effects between two sets of prompts (prompts, columns): the second mean minus the first.

    The interval is from a bootstrap that draws from both sets; p is from a permutation test that reassigns prompts to
    the sets; the size is in pooled standard deviations; n is that of the smaller set.
    """
    defined = [~np.isnan(each) for each in (one, two)]
    columns = one.shape[1]
    results = {name: np.full(columns, np.nan) for name in ("mean", "low", "high", "size", "p")}
    for prompts, which in _same_prompts(np.concatenate(defined)):
        first, second = one[prompts[: len(one)]][:, which], two[prompts[len(one) :]][:, which]
        if not len(first) or not len(second):
            continue
        results["mean"][which] = second.mean(0) - first.mean(0)
        fewest, freedom = min(len(first), len(second)), len(first) + len(second) - 2
        if fewest > 1:
            squares = first.var(0, ddof=1) * (len(first) - 1) + second.var(0, ddof=1) * (len(second) - 1)
            results["size"][which] = _over_spread(results["mean"][which], np.sqrt(squares / freedom))
        if fewest >= FEWEST:
            results["p"][which] = _permutation_p(first, second, seed, columns)
            results["low"][which], results["high"][which] = _interval_of_difference(first, second, seed)
    n = np.minimum(defined[0].sum(0), defined[1].sum(0)).astype(np.int64)
    return Effects(n=n, q=discoveries(results["p"]), **results)


def discoveries(p: Floats) -> Floats:
    """Q by Benjamini and Hochberg; NaN where nothing was tested."""
    from scipy import stats  # takes a second to load, so not before it is needed

    q = np.full(len(p), np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        q[tested] = stats.false_discovery_control(p[tested])
    return q


def _interval_of_difference(one: Floats, two: Floats, seed: int) -> tuple[Floats, Floats]:
    chance = np.random.default_rng(seed)
    weights = [_resamples(chance, len(each), RESAMPLES) for each in (one, two)]
    level = _level(min(len(one), len(two)))
    ends = np.empty((2, one.shape[1]))
    for start in range(0, one.shape[1], TOGETHER):
        some = np.s_[start : start + TOGETHER]
        drawn = weights[1] @ two[:, some] - weights[0] @ one[:, some]
        ends[:, some] = np.quantile(drawn, [level, 1 - level], axis=0)
    return ends[0], ends[1]


def _permutation_p(one: Floats, two: Floats, seed: int, among: int) -> Floats:
    """Two-sided p of the difference of means if every prompt could as well be in the other set."""
    values = np.concatenate([one, two])
    labels = np.concatenate([np.full(len(one), -1 / len(one)), np.full(len(two), 1 / len(two))])

    def drawn(chance: np.random.Generator, count: int) -> Iterator[Floats]:
        return _shuffled(chance, labels, count)

    first = drawn(np.random.default_rng(seed), FLIPS)
    return _refined(values, labels @ values, first, drawn, seed, among, FLIPS)


def _shuffled(chance: np.random.Generator, labels: Floats, count: int, together: int = 4096) -> Iterator[Floats]:
    for start in range(0, count, together):
        rows = min(together, count - start)
        yield chance.permuted(np.tile(labels, (rows, 1)), axis=1)


def interval_of_mean(
    values: Floats, *, seed: int = 0, resamples: int = RESAMPLES, widened: bool = True
) -> tuple[Floats, Floats]:
    """The ends of the bootstrap percentile interval of each column's mean. values: NaN where a prompt has none.

    Prompts are drawn, and each column's mean is over the drawn prompts that it has. A bootstrap of few prompts is too
    narrow, because it takes their spread as exact. widened: use the percentiles at which it would give Student's
    interval for normal data.
    """
    defined = ~np.isnan(values)
    filled, count = np.where(defined, values, 0.0), defined.sum(0)
    weights = _resamples_of(seed, len(values), resamples)
    ends = np.empty((2, values.shape[1]))
    for start in range(0, values.shape[1], TOGETHER):
        some = np.s_[start : start + TOGETHER]
        drawn = weights @ filled[:, some]
        if (count[some] < len(values)).any():
            drawn /= weights @ defined[:, some].astype(np.float64)
        for n in np.unique(count[some]):
            level = _level(int(n)) if widened else (1 - CONFIDENCE) / 2
            mine = np.flatnonzero(count[some] == n)
            ends[:, start + mine] = np.quantile(drawn[:, mine], [level, 1 - level], axis=0)
    mean, same = mean_of_seen(values, 0), _spread(values) == 0
    return np.where(same, mean, ends[0]), np.where(same, mean, ends[1])


@lru_cache(maxsize=2)
def _resamples_of(seed: int, n: int, count: int) -> Floats:
    return _resamples(np.random.default_rng(seed), n, count)


def _resamples(chance: np.random.Generator, n: int, count: int) -> Floats:
    """(count, n): how often each prompt is drawn, as a share."""
    drawn = chance.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
    shares: Floats = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n) / n
    return shares


def _level(n: int) -> float:
    """The lower percentile at which a bootstrap of n normal values gives Student's interval."""
    return float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - CONFIDENCE) / 2)))


def sign_flip_p(values: Floats, *, seed: int = 0, flips: int = FLIPS, among: int | None = None) -> Floats:
    """Two-sided p of each column's mean if every prompt's difference could as well have the opposite sign.

    Exact if all sign patterns can be enumerated. Otherwise random patterns are used, with more of them for columns that
    none of the first reached, enough to find a discovery among all columns tested together (`among`). Prompts that a
    column does not have (NaN) add nothing to its sum.
    """
    n, columns = values.shape
    filled = np.nan_to_num(values)
    if 2**n <= flips:
        exact: Floats = _reached(filled, filled.sum(0), _all_signs(n)) / 2**n
        return exact

    def drawn(chance: np.random.Generator, count: int) -> Iterator[Floats]:
        return _random_signs(chance, n, count)

    first = iter(_first_signs(seed, n, flips)) if n <= FEW else _random_signs(np.random.default_rng(seed), n, flips)
    return _refined(filled, filled.sum(0), first, drawn, seed, among or columns, flips)


Drawn = Callable[[np.random.Generator, int], Iterator[Floats]]


@lru_cache(maxsize=2)
def _first_signs(seed: int, n: int, count: int) -> list[Floats]:
    return list(_random_signs(np.random.default_rng(seed), n, count))


def _refined(
    values: Floats, actual: Floats, first: Iterator[Floats], drawn: Drawn, seed: int, among: int, count: int
) -> Floats:
    """P from the first `count` weightings of the prompts; from more of them for columns that none of these reached."""
    chance = np.random.default_rng([seed, count])
    reached = _reached(values, actual, first)
    p: Floats = (reached + 1) / (count + 1)
    rare = reached == 0
    more = min(MOST_FLIPS, math.ceil(100 * among / max(1, rare.sum())))
    if rare.any() and more > 2 * count:  # below that, `count` of them are enough for a discovery
        p[rare] = (_reached(values[:, rare], actual[rare], drawn(chance, more)) + 1) / (more + 1)
    return p


def _reached(values: Floats, actual: Floats, weightings: Iterator[Floats]) -> Floats:
    """How many weightings of the prompts give a sum at least as far from zero as the actual one."""
    total = np.zeros(values.shape[1])
    for some in weightings:
        least = np.abs(actual) - 1e-12 * np.abs(some[0]).max() * np.abs(values).sum(0)
        for start in range(0, values.shape[1], TOGETHER):
            part = np.s_[start : start + TOGETHER]
            total[part] += (np.abs(some @ values[:, part]) >= least[part]).sum(0)
    return total


def _all_signs(n: int, together: int = 4096) -> Iterator[Floats]:
    for start in range(0, 2**n, together):
        numbers = np.arange(start, min(start + together, 2**n))[:, None]
        yield 1 - 2 * ((numbers >> np.arange(n)) & 1).astype(np.float64)


def _random_signs(chance: np.random.Generator, n: int, count: int, together: int = 4096) -> Iterator[Floats]:
    for start in range(0, count, together):
        rows = min(together, count - start)
        bits = np.unpackbits(np.frombuffer(chance.bytes(rows * math.ceil(n / 8)), np.uint8).reshape(rows, -1), axis=1)
        yield 1 - 2 * bits[:, :n].astype(np.float64)


def _size(values: Floats) -> Floats:
    return _over_spread(mean_of_seen(values, 0), np.where(_spread(values) > 0, np.nanstd(values, 0, ddof=1), 0))


def _spread(values: Floats) -> Floats:
    spread: Floats = np.nanmax(values, 0) - np.nanmin(values, 0)
    return spread


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
