"""The studentised bootstrap: intervals and p of means, thousands of columns at once.

Clusters of prompts are drawn, and each draw's deviation is divided by its own standard error, so that the spread of few
values is not taken as exact and a skewed spread is followed. Two readings of these draws are usual, and each fails
somewhere: the symmetric one is too narrow for skewed differences, the equal-tailed one for heavy tails. The wider of
the two counts, for the interval as for p: the interval excludes zero exactly where p is below 1 - CONFIDENCE. Few
values of a skewed spread look less skewed than it is, and then both are still too narrow. So where values are skewed,
the ends are those of a smaller error rate, and p is larger by the same factor: 2 up to 16 clusters, less beyond.

A column whose rare large values are not among the prompts looks far more exact than it is, and its own draws can't show
it. So columns of a kind lend each other their tails: where hardly any draw of its own reaches a mean, the draws of all
columns in its pool decide. And no column's error is taken to be much smaller than a typical one's. docs/statistics.md
has the simulations that this was chosen by.

The standard error allows for clusters of several sizes: it is the jackknife's of a ratio of sums, sums of values over
sums of sizes. A large cluster draws the mean to itself, so its own distance from the mean is too small by its share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from attnscope.analysis.spread import CONFIDENCE
from attnscope.study.independence import testable

Floats = NDArray[np.float64]

DRAWS = 2999
SHOWN = 2 / (DRAWS + 1)  # the smallest p that draws can show
LEAST = 0.03  # of a typical column's error: no column's error is taken to be much smaller
SKEWED, FEW = 0.5, 16  # with more skew than this, a smaller error rate; half of it with so many clusters or fewer
TOGETHER = 256  # columns at once


@dataclass(frozen=True)
class Sample:
    """Values of prompts, summed by cluster. sums and sizes: (clusters, columns), 0 where a cluster has no value."""

    sums: Floats
    sizes: Floats

    @classmethod
    def of(cls, values: Floats, clusters: NDArray[np.int64] | None = None) -> Sample:
        """values: (prompts, columns), NaN where a prompt has none. clusters: each prompt's; its own by default."""
        defined = ~np.isnan(values)
        filled, counts = np.where(defined, values, 0.0), defined.astype(np.float64)
        if clusters is None:
            return cls(filled, counts)
        _, places = np.unique(clusters, return_inverse=True)
        members = np.zeros((int(places.max(initial=-1)) + 1, len(values)))
        members[places, np.arange(len(values))] = 1
        return cls(members @ filled, members @ counts)

    @cached_property
    def count(self) -> Floats:
        """How many clusters each column has."""
        counted: Floats = (self.sizes > 0).sum(0).astype(np.float64)
        return counted

    @cached_property
    def mean(self) -> Floats:
        total = self.sizes.sum(0)
        mean: Floats = np.divide(self.sums.sum(0), total, out=np.full(total.shape, np.nan), where=total > 0)
        return mean

    @cached_property
    def residuals(self) -> Floats:
        """(clusters, columns): how far each cluster's sum is from that of as many mean values."""
        apart: Floats = self.sums - self.sizes * np.nan_to_num(self.mean)
        small = np.abs(apart) <= 1e-12 * np.abs(self.sums).max(0, initial=0.0)
        return np.where(small, 0.0, apart)  # rounding, where all values are the same

    @cached_property
    def variance(self) -> Floats:
        """The squared standard error of the mean; NaN below two clusters."""
        with np.errstate(invalid="ignore", divide="ignore"):
            total = self.sizes.sum(0)
            factor = np.where(self.count > 1, (self.count - 1) / self.count, np.nan)
            apart = self.residuals / (1 - self.sizes / total)
            squared: Floats = factor * (apart**2).sum(0) / total**2
        return squared

    @cached_property
    def half_width(self) -> Floats:
        """Half the width of Student's interval of the mean; NaN where there would be no test either."""
        with np.errstate(invalid="ignore"):
            half: Floats = stdtrit(self.count - 1, (1 + CONFIDENCE) / 2) * np.sqrt(self.variance)
        return np.where(testable(self.sizes), half, np.nan)

    @cached_property
    def skew(self) -> Floats:
        """The skewness of the residuals; 0 where they do not vary."""
        squares, cubes = ((self.residuals**power).sum(0) / np.maximum(self.count, 1) for power in (2, 3))
        skewness: Floats = np.divide(cubes, squares**1.5, out=np.zeros(len(squares)), where=squares > 0)
        return skewness

    @cached_property
    def alike(self) -> bool:
        """Whether all clusters have one value in every column, as prompts without clusters do."""
        return bool((self.sizes == 1).all())

    def columns(self, which: slice | NDArray[np.int64]) -> Sample:
        return Sample(self.sums[:, which], self.sizes[:, which])

    def drawn(self, weights: Floats) -> tuple[Floats, Floats]:
        """(columns, draws): the deviation of each draw's mean and its squared error. weights: (clusters, draws)."""
        residuals = self.residuals
        total = residuals.T @ weights
        factor = (self.count / (self.count - 1))[:, None]
        if self.alike:
            clusters = len(residuals)
            squares, shift = (residuals**2).T @ weights, total / clusters
            return shift, factor * np.maximum(squares - total * shift, 0.0) / clusters**2
        size, sizes = self.sizes.T @ weights, self.sizes.max(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            alone = 1 - sizes[:, None] / (sizes @ weights)  # what the mean has of the other clusters
            counted = np.where(weights > 0, weights / alone**2, 0.0)
            squares, cross, sizes_squared = (
                each.T @ counted for each in (residuals**2, residuals * self.sizes, self.sizes**2)
            )
            shift = total / size
            apart = squares - 2 * shift * cross + shift**2 * sizes_squared
            return shift, np.maximum(apart, 0.0) / (factor * size**2)


@dataclass(frozen=True)
class Tested:
    """One number per column."""

    low: Floats
    high: Floats
    p: Floats
    same: Floats
    """P that the mean is outside the margin, the larger one of its two ends; NaN without a margin."""


def bootstrapped(
    groups: Sequence[Sequence[Sample]], *, seed: int, typical: float, margin: float | None = None
) -> list[Tested]:
    """Of groups of columns that form one pool; each group's columns have the same prompts.

    Of one sample per group: its mean. Of two: the second mean minus the first. typical: the median error of the columns
    that are tested together. margin: below it, a mean is no difference.
    """
    own = [_Own.of(samples, seed, LEAST * typical, margin) for samples in groups]
    pool = _Pool([tail for each in own for tail in each.tails], min((each.nearest for each in own), default=np.inf))
    return [each.tested(pool) for each in own]


class _Pool:
    """How far the draws of columns of a kind are from their means, in errors; asked only about those beyond an edge."""

    def __init__(self, draws: Sequence[Floats], edge: float) -> None:
        self.total = sum(map(len, draws))
        self.far = np.sort(np.concatenate([np.zeros(0), *(each[each >= edge] for each in draws)]))

    def p(self, own: Floats, t: Floats) -> Floats:
        """P of means by all draws, where it is smaller than a column's own draws can show."""
        if not self.total:
            return own
        beyond = len(self.far) - np.searchsorted(self.far, np.abs(t), side="left")
        pooled: Floats = np.where(own <= SHOWN, (beyond + 1) / (self.total + 1), own)
        return pooled


@dataclass(frozen=True)
class _Own:
    """What columns of the same prompts show on their own."""

    samples: Sequence[Sample]
    estimate: Floats
    error: Floats
    below: Floats
    """How many errors the interval reaches below the mean, and above."""
    above: Floats
    p: Floats
    same: Floats
    raised: Floats
    """What p is multiplied by: 1 where values are not skewed, else up to 2."""
    margin: float | None
    tails: list[Floats]
    """How far draws are from the mean, in errors, of the columns that vary."""

    @classmethod
    def of(cls, samples: Sequence[Sample], seed: int, least: float, margin: float | None) -> _Own:
        """least: what is added to every error, as errors are added."""
        estimate, own = estimate_of(samples)
        error, clusters = np.hypot(own, least), _clusters(samples)
        columns = len(estimate)
        below, above, p, same = (np.full(columns, np.nan) for _ in range(4))
        skewed = np.max([np.abs(each.skew) for each in samples], axis=0) > SKEWED
        factor = 1 + min(1.0, FEW / max(1.0, float(clusters.max(initial=0.0)))) ** 2
        tails = []
        weights = [_weights_of(seed + place, len(each.sums), DRAWS) for place, each in enumerate(samples)]
        for start in range(0, columns, TOGETHER):
            some = slice(start, min(start + TOGETHER, columns))
            shift, variance = _drawn([each.columns(some) for each in samples], weights)
            smallest = ((own / clusters)[some] ** 2)[:, None]  # a draw may miss all of the spread
            draws = _studentised(shift, np.maximum(variance, smallest))
            below[some], above[some] = _ends(draws, skewed[some], factor)
            with np.errstate(invalid="ignore", divide="ignore"):
                p[some] = _p(_reached(draws, estimate[some] / error[some]), DRAWS)
                if margin is not None:
                    same[some] = _p_of_margin(draws, estimate[some], error[some], margin)
            varies = own[some] > least  # the tails of others would be short
            tails.append(np.abs(_studentised(shift[varies], variance[varies] + least**2)).ravel())
        raised = np.where(skewed, factor, 1.0)
        result = cls(samples, estimate, error, below, above, p, same, raised, margin, tails)
        result._fill_constant(own == 0)
        return result

    def _fill_constant(self, constant: NDArray[np.bool_]) -> None:
        """Where all values are the same, draws show nothing: Student's t, with the least error of a column."""
        freedom = _clusters(self.samples)[constant] - 1
        estimate, error = self.estimate[constant], self.error[constant]
        self.below[constant] = self.above[constant] = stdtrit(freedom, (1 + CONFIDENCE) / 2)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.p[constant] = np.where(estimate == 0, 1.0, 2 * stdtr(freedom, -np.abs(estimate) / error))
            if self.margin is not None:
                outside = 2 * stdtr(freedom, (np.abs(estimate) - self.margin) / error)
                self.same[constant] = np.where(np.abs(estimate) < self.margin, np.minimum(1.0, outside), 1.0)

    @property
    def t(self) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            distance: Floats = np.abs(self.estimate) / self.error
        return distance

    @property
    def t_of_margin(self) -> Floats:
        """The distance from the nearer end of the margin."""
        with np.errstate(invalid="ignore", divide="ignore"):
            distance: Floats = ((self.margin or 0.0) - np.abs(self.estimate)) / self.error
        return distance

    @property
    def nearest(self) -> float:
        """The smallest distance that the pool will be asked about."""
        asked = [self.t[self.p <= SHOWN], self.t_of_margin[self.same <= SHOWN]]
        return float(np.concatenate(asked).min(initial=np.inf))

    def tested(self, pool: _Pool) -> Tested:
        """With the draws of the pool, where the column's own draws show too little."""
        with np.errstate(invalid="ignore", divide="ignore"):
            p = np.minimum(1.0, self.raised * pool.p(self.p, self.t))
            low, high = self.estimate - self.below * self.error, self.estimate + self.above * self.error
            reaches = (self.p <= SHOWN) & (p >= 1 - CONFIDENCE)  # zero, by the pool
            low, high = np.where(reaches, np.fmin(low, 0.0), low), np.where(reaches, np.fmax(high, 0.0), high)
            same = self.same
            if self.margin is not None:
                same = np.minimum(1.0, self.raised * pool.p(same, self.t_of_margin))
                inside = (low > -self.margin) & (high < self.margin)
                same = np.where(inside, same, np.fmax(same, 1 - CONFIDENCE))
        smallest = smallest_p(self.samples)
        return Tested(low, high, np.maximum(p, smallest), np.maximum(same, smallest))


def _clusters(samples: Sequence[Sample]) -> Floats:
    fewest: Floats = np.min([each.count for each in samples], axis=0)
    return fewest


def estimate_of(samples: Sequence[Sample]) -> tuple[Floats, Floats]:
    """The estimate and its standard error."""
    variance = np.sum([each.variance for each in samples], axis=0)
    mean = samples[0].mean if len(samples) == 1 else samples[1].mean - samples[0].mean
    return mean, np.sqrt(variance)


def smallest_p(samples: Sequence[Sample]) -> Floats:
    """No smaller p is ever given: the chance that all clusters lie on one side, or that two sets separate.

    With few clusters, draws can suggest smaller ones, which rest on nothing but the shape of a handful of values.
    """
    if len(samples) == 1:
        smallest: Floats = 2.0 ** (1 - samples[0].count)
        return smallest
    one, two = (each.count for each in samples)
    return np.array([2 / math.comb(int(a + b), int(a)) for a, b in zip(one, two, strict=True)])


def _drawn(samples: Sequence[Sample], weights: Sequence[Floats]) -> tuple[Floats, Floats]:
    """(columns, draws): the deviation of each draw's estimate and its squared error."""
    drawn = [each.drawn(some) for each, some in zip(samples, weights, strict=True)]
    shift = drawn[0][0] if len(drawn) == 1 else drawn[1][0] - drawn[0][0]
    return shift, np.sum([variance for _, variance in drawn], axis=0)


def _studentised(shift: Floats, variance: Floats) -> Floats:
    """Deviations in errors; infinite where a draw has no spread."""
    with np.errstate(invalid="ignore", divide="ignore"):
        studentised: Floats = shift / np.sqrt(variance)
    return np.where(np.isnan(studentised), np.inf, studentised)  # a draw without any value says nothing either


def _ends(draws: Floats, skewed: NDArray[np.bool_], factor: float) -> tuple[Floats, Floats]:
    """How many standard errors the interval reaches below and above the mean. factor: of the error rate, if skewed."""
    plain, wide = (_ends_at(draws, alpha) for alpha in (1 - CONFIDENCE, (1 - CONFIDENCE) / factor))
    return np.where(skewed, wide[0], plain[0]), np.where(skewed, wide[1], plain[1])


def _ends_at(draws: Floats, alpha: float) -> tuple[Floats, Floats]:
    """At this error rate."""
    many = draws.shape[1]
    both, each = (math.ceil(share * (many + 1) - 1e-9) - 1 for share in (alpha, alpha / 2))  # from the far end, from 1
    tails = np.partition(draws, [each - 1, many - each], axis=1)
    far = np.partition(np.abs(draws), many - both, axis=1)[:, -both]
    return np.maximum(tails[:, -each], far), np.maximum(-tails[:, each - 1], far)


def _reached(draws: Floats, actual: Floats) -> Floats:
    """(3, columns): how many draws are at least as large, as small, as far from zero."""
    t = np.nan_to_num(actual)[:, None]
    return np.stack([(draws >= t).sum(1), (draws <= t).sum(1), (np.abs(draws) >= np.abs(t)).sum(1)]).astype(np.float64)


def _p(reached: Floats, count: int) -> Floats:
    above, below, far = (reached + 1) / (count + 1)
    p: Floats = np.minimum(1.0, np.maximum(2 * np.minimum(above, below), far))
    return p


def _p_of_margin(draws: Floats, estimate: Floats, error: Floats, margin: float) -> Floats:
    """The larger p of the two ends, so that the interval lies within the margin exactly where p is below 0.05."""
    ends = [_p(_reached(draws, (estimate + side) / error), draws.shape[1]) for side in (margin, -margin)]
    p: Floats = np.where(np.abs(estimate) < margin, np.maximum(*ends), 1.0)
    return p


@lru_cache(maxsize=4)
def _weights_of(seed: int, clusters: int, count: int) -> Floats:
    return _weights(np.random.default_rng(seed), clusters, count)


def _weights(chance: np.random.Generator, clusters: int, count: int) -> Floats:
    """(clusters, draws): how often each cluster is drawn."""
    drawn = chance.integers(0, clusters, (count, clusters))
    drawn += clusters * np.arange(count)[:, None]
    times = np.bincount(drawn.ravel(), minlength=count * clusters).reshape(count, clusters)
    return times.astype(np.float64).T
