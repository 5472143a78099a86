"""Differences paired by prompt, thousands at once: how large, how sure, and how many of them chance would make.

The prompt is the unit. For each column (a head, a class, a layer) of differences within prompts: the mean with a
bootstrap interval (percentiles, widened for few prompts), the p of a sign-flip permutation test, the effect size in
standard deviations, and over all columns the false discovery rate of Benjamini and Hochberg.
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

Numbers = NDArray[np.float64]

FALSE_DISCOVERIES = 0.05  # the rate up to which an effect is called one
RESAMPLES = 2999
FLIPS = 9999
MOST_FLIPS = 1_000_000
FEWEST = 6  # prompts: with five, no p can be below 0.05, and a bootstrap has little to draw from
TOGETHER = 1024  # columns resampled at once
FEW = 600  # prompts whose signs are held for the next time
ENOUGH = 20  # prompts: of so many, a resample misses none that a column has but once in a million times


@dataclass(frozen=True)
class Effects:
    """One number a column in each; NaN where there are too few prompts to tell."""

    n: NDArray[np.int64]
    mean: Numbers
    low: Numbers
    high: Numbers
    size: Numbers
    """The mean in standard deviations of the differences."""
    p: Numbers
    q: Numbers


def effects(differences: Numbers, seed: int = 0) -> Effects:
    """Of differences (prompts, columns); NaN where a prompt has no pair, which leaves it out of that column alone."""
    columns = differences.shape[1]
    found = {name: np.full(columns, np.nan) for name in ("mean", "low", "high", "size", "p")}
    known = ~np.isnan(differences)
    for there, which in _together(known):
        values = differences[there][:, which]
        if not len(values):
            continue
        n = (~np.isnan(values)).sum(0)
        found["mean"][which] = mean_of_seen(values, 0)
        if n.min() > 1:
            found["size"][which] = _size(values)
        if n.min() >= FEWEST:
            found["p"][which] = sign_flip_p(values, seed=seed, among=columns)
            found["low"][which], found["high"][which] = interval_of_mean(values, seed=seed)
    return Effects(n=known.sum(0).astype(np.int64), q=discoveries(found["p"]), **found)


def unpaired_effects(one: Numbers, two: Numbers, seed: int = 0) -> Effects:
    """Of two sets of prompts (prompts, columns), second less first: the mean's difference, as `effects` has it.

    The interval is of a bootstrap that draws from both sets; p is of a permutation test over which set a prompt is of;
    the size is in pooled standard deviations; n is that of the smaller set.
    """
    known = [~np.isnan(each) for each in (one, two)]
    columns = one.shape[1]
    found = {name: np.full(columns, np.nan) for name in ("mean", "low", "high", "size", "p")}
    for there, which in _alike(np.concatenate(known)):
        first, second = one[there[: len(one)]][:, which], two[there[len(one) :]][:, which]
        if not len(first) or not len(second):
            continue
        found["mean"][which] = second.mean(0) - first.mean(0)
        fewest, freedom = min(len(first), len(second)), len(first) + len(second) - 2
        if fewest > 1:
            squares = first.var(0, ddof=1) * (len(first) - 1) + second.var(0, ddof=1) * (len(second) - 1)
            found["size"][which] = _over_spread(found["mean"][which], np.sqrt(squares / freedom))
        if fewest >= FEWEST:
            found["p"][which] = _permutation_p(first, second, seed, columns)
            found["low"][which], found["high"][which] = _interval_of_difference(first, second, seed)
    n = np.minimum(known[0].sum(0), known[1].sum(0)).astype(np.int64)
    return Effects(n=n, q=discoveries(found["p"]), **found)


def discoveries(p: Numbers) -> Numbers:
    """Benjamini and Hochberg's rate of each; NaN where nothing was tested."""
    from scipy import stats  # takes a second to load, so not before it is needed

    q = np.full(len(p), np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        q[tested] = stats.false_discovery_control(p[tested])
    return q


def _interval_of_difference(one: Numbers, two: Numbers, seed: int) -> tuple[Numbers, Numbers]:
    chance = np.random.default_rng(seed)
    weights = [_resamples(chance, len(each), RESAMPLES) for each in (one, two)]
    level = _level(min(len(one), len(two)))
    ends = np.empty((2, one.shape[1]))
    for start in range(0, one.shape[1], TOGETHER):
        some = np.s_[start : start + TOGETHER]
        drawn = weights[1] @ two[:, some] - weights[0] @ one[:, some]
        ends[:, some] = np.quantile(drawn, [level, 1 - level], axis=0)
    return ends[0], ends[1]


def _permutation_p(one: Numbers, two: Numbers, seed: int, among: int) -> Numbers:
    """Two-sided p of the difference of means if every prompt were as likely of the other set."""
    values = np.concatenate([one, two])
    labels = np.concatenate([np.full(len(one), -1 / len(one)), np.full(len(two), 1 / len(two))])

    def drawn(chance: np.random.Generator, count: int) -> Iterator[Numbers]:
        return _shuffled(chance, labels, count)

    first = drawn(np.random.default_rng(seed), FLIPS)
    return _refined(values, labels @ values, first, drawn, seed, among, FLIPS)


def _shuffled(chance: np.random.Generator, labels: Numbers, count: int, together: int = 4096) -> Iterator[Numbers]:
    for start in range(0, count, together):
        rows = min(together, count - start)
        yield chance.permuted(np.tile(labels, (rows, 1)), axis=1)


def interval_of_mean(
    values: Numbers, *, seed: int = 0, resamples: int = RESAMPLES, widened: bool = True
) -> tuple[Numbers, Numbers]:
    """Ends of the bootstrap percentile interval of each column's mean; NaN where a prompt has none.

    Prompts are drawn, and each column's mean is over those of them that it has. A bootstrap of few prompts is too
    narrow: it knows their spread only, not that it is an estimate. Widened, it takes
    the percentiles at which it would give the interval of Student for data that are normal.
    """
    known = ~np.isnan(values)
    held, count = np.where(known, values, 0.0), known.sum(0)
    weights = _resamples_of(seed, len(values), resamples)
    ends = np.empty((2, values.shape[1]))
    for start in range(0, values.shape[1], TOGETHER):
        some = np.s_[start : start + TOGETHER]
        drawn = weights @ held[:, some]
        if (count[some] < len(values)).any():
            drawn /= weights @ known[:, some].astype(np.float64)
        for n in np.unique(count[some]):
            level = _level(int(n)) if widened else (1 - CONFIDENCE) / 2
            mine = np.flatnonzero(count[some] == n)
            ends[:, start + mine] = np.quantile(drawn[:, mine], [level, 1 - level], axis=0)
    mean, same = mean_of_seen(values, 0), _spread(values) == 0
    return np.where(same, mean, ends[0]), np.where(same, mean, ends[1])


@lru_cache(maxsize=2)
def _resamples_of(seed: int, n: int, count: int) -> Numbers:
    return _resamples(np.random.default_rng(seed), n, count)


def _resamples(chance: np.random.Generator, n: int, count: int) -> Numbers:
    """(count, n): how often each prompt is drawn, as a share."""
    drawn = chance.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
    made: Numbers = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n) / n
    return made


def _level(n: int) -> float:
    """The lower percentile at which a bootstrap of n normal values gives Student's interval."""
    return float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - CONFIDENCE) / 2)))


def sign_flip_p(values: Numbers, *, seed: int = 0, flips: int = FLIPS, among: int | None = None) -> Numbers:
    """Two-sided p of each column's mean if every prompt's difference were as likely the other way round.

    Exact where all sign patterns can be counted. Otherwise random ones, and for the few columns that none of them
    reached so many more that a discovery can be told among all columns that are tested together: `among`. Prompts
    that a column has not (NaN) add nothing to its sum, whatever their sign.
    """
    n, columns = values.shape
    held = np.nan_to_num(values)
    if 2**n <= flips:
        exact: Numbers = _reached(held, held.sum(0), _all_signs(n)) / 2**n
        return exact

    def drawn(chance: np.random.Generator, count: int) -> Iterator[Numbers]:
        return _random_signs(chance, n, count)

    first = iter(_first_signs(seed, n, flips)) if n <= FEW else _random_signs(np.random.default_rng(seed), n, flips)
    return _refined(held, held.sum(0), first, drawn, seed, among or columns, flips)


Drawn = Callable[[np.random.Generator, int], Iterator[Numbers]]


@lru_cache(maxsize=2)
def _first_signs(seed: int, n: int, count: int) -> list[Numbers]:
    return list(_random_signs(np.random.default_rng(seed), n, count))


def _refined(
    values: Numbers, found: Numbers, first: Iterator[Numbers], drawn: Drawn, seed: int, among: int, count: int
) -> Numbers:
    """P by the first weightings of the prompts, `count` of them; for columns that none of them reached, by more."""
    chance = np.random.default_rng([seed, count])
    reached = _reached(values, found, first)
    p: Numbers = (reached + 1) / (count + 1)
    rare = reached == 0
    more = min(MOST_FLIPS, math.ceil(100 * among / max(1, rare.sum())))
    if rare.any() and more > 2 * count:  # up to that, `count` of them can tell a discovery too
        p[rare] = (_reached(values[:, rare], found[rare], drawn(chance, more)) + 1) / (more + 1)
    return p


def _reached(values: Numbers, found: Numbers, weightings: Iterator[Numbers]) -> Numbers:
    """How many weightings of the prompts give a sum as far from zero as the one that was found."""
    total = np.zeros(values.shape[1])
    for some in weightings:
        least = np.abs(found) - 1e-12 * np.abs(some[0]).max() * np.abs(values).sum(0)
        for start in range(0, values.shape[1], TOGETHER):
            part = np.s_[start : start + TOGETHER]
            total[part] += (np.abs(some @ values[:, part]) >= least[part]).sum(0)
    return total


def _all_signs(n: int, together: int = 4096) -> Iterator[Numbers]:
    for start in range(0, 2**n, together):
        numbers = np.arange(start, min(start + together, 2**n))[:, None]
        yield 1 - 2 * ((numbers >> np.arange(n)) & 1).astype(np.float64)


def _random_signs(chance: np.random.Generator, n: int, count: int, together: int = 4096) -> Iterator[Numbers]:
    for start in range(0, count, together):
        rows = min(together, count - start)
        bits = np.unpackbits(np.frombuffer(chance.bytes(rows * math.ceil(n / 8)), np.uint8).reshape(rows, -1), axis=1)
        yield 1 - 2 * bits[:, :n].astype(np.float64)


def _size(values: Numbers) -> Numbers:
    return _over_spread(mean_of_seen(values, 0), np.where(_spread(values) > 0, np.nanstd(values, 0, ddof=1), 0))


def _spread(values: Numbers) -> Numbers:
    found: Numbers = np.nanmax(values, 0) - np.nanmin(values, 0)
    return found


def _over_spread(mean: Numbers, spread: Numbers) -> Numbers:
    """NaN where there is a mean without any spread."""
    found: Numbers = np.divide(mean, spread, out=np.where(mean == 0, 0.0, np.nan), where=spread > 0)
    return found


def _together(there: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Columns that most prompts have, as one; of the others those that the same prompts have."""
    prompts, count = len(there), there.sum(0)
    full = (count >= prompts / 2) & (count >= ENOUGH)
    if full.any():
        yield np.ones(prompts, dtype=bool), np.flatnonzero(full)
    others = np.flatnonzero(~full)
    for rows, which in _alike(there[:, others]):
        yield rows, others[which]


def _alike(there: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Columns that the same prompts have, together."""
    patterns, which = np.unique(there, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        yield patterns[:, number], np.flatnonzero(which.ravel() == number)
