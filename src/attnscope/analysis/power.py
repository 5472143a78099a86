"""Before a run: the smallest q it can reach, the chance to find an effect, and how many prompts that takes.

The unit is the cluster, as in all tests; without clusters, the prompt. Sizes are in standard deviations of clusters:
the standard error of the mean times the root of their number. The chance is simulated with the test itself, on normal
differences; with many clusters, it is that of a t test, which the test then is nearly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from attnscope.analysis.compared import Compared
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, needed
from attnscope.analysis.effects import effects
from attnscope.analysis.sides import MASS
from attnscope.study.independence import FEWEST

SIZES = (0.3, 0.5, 0.8)
"""Without a pilot: small, medium and large effects."""
CHANCE = 0.8
MOST = 100_000  # clusters
MANY = 120  # clusters; beyond, power is not simulated
COLUMNS = 500  # simulated


@dataclass(frozen=True)
class Reach:
    """What so many clusters can show among so many tests."""

    clusters: int
    tests: int

    @property
    def smallest_p(self) -> float:
        return 2.0 ** (1 - self.clusters)

    @property
    def smallest_q(self) -> float:
        """Of a single head, where no other changes."""
        return min(1.0, self.smallest_p * self.tests)

    @property
    def together(self) -> int:
        """How many heads have to be at the smallest p for their q to be below 0.05."""
        return needed(self.smallest_p, self.tests)

    @property
    def testable(self) -> bool:
        return self.clusters >= FEWEST


@dataclass(frozen=True)
class Target:
    """Something to find: a mean over heads, or some of the heads. level: the p it has to reach."""

    name: str
    level: float


def targets(heads: int, classes: int) -> list[Target]:
    """What a comparison may find, from the easiest to the hardest."""
    return [
        Target("the mean over heads, of one class", FALSE_DISCOVERIES / classes),
        Target("a tenth of all heads, of one class", FALSE_DISCOVERIES / (10 * classes)),
        Target("a single head", FALSE_DISCOVERIES / (heads * classes)),
    ]


def power(size: float, clusters: int, level: float) -> float:
    """The chance that an effect of this size is found with so many clusters."""
    if clusters < FEWEST or 2.0 ** (1 - clusters) > level:
        return 0.0
    if clusters <= MANY:
        return float((_simulated(abs(size), clusters) <= level).mean())
    shift = abs(size) * clusters**0.5
    edge = stdtrit(clusters - 1, 1 - level / 2)
    return float(ndtr(shift - edge) + ndtr(-shift - edge))


@lru_cache(maxsize=256)
def _simulated(size: float, clusters: int) -> NDArray[np.float64]:
    """P of columns with this effect."""
    return effects(np.random.default_rng(clusters).normal(size, 1, (clusters, COLUMNS))).p


def clusters_needed(size: float, level: float, chance: float = CHANCE) -> int | None:
    """The fewest clusters that find an effect of this size with this chance; None if they would be too many."""
    if not np.isfinite(size) or power(size, MOST, level) < chance:
        return None
    low, high = FEWEST - 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(size, middle, level) >= chance else (middle, high)
    return high


@dataclass(frozen=True)
class Pilot:
    """What a pilot suggests about one class of one comparison. Sizes are less what chance alone adds to them."""

    comparison: str
    token_class: str
    mean: float
    """The size of the mean over heads."""
    head: float
    """The size that a tenth of the heads reach."""


def pilots(compared: Sequence[Compared], model: str, queries: str) -> list[Pilot]:
    """What the comparisons of a model in a pilot run suggest, for masses that can be tested.

    Those with another model belong to the model that is not the first. A placebo has no effect to look for.
    """
    found = []
    for each in compared:
        if each.comparison.kind == "placebo" or each.comparison.two.model != model:
            continue
        mine = (pl.col("queries") == queries) & (pl.col("quantity") == MASS) & pl.col("q").is_not_null()
        heads = each.heads.filter(mine)
        for row in each.overall.filter(mine).iter_rows(named=True):
            means, others = pl.DataFrame([row]), heads.filter(heads["token_class"] == row["token_class"])
            if len(others):
                mean, tenth = size_reached(means, 0.5), size_reached(others, 0.9)
                found.append(Pilot(each.comparison.name, row["token_class"], mean, tenth))
    return found


def size_reached(rows: pl.DataFrame, quantile: float) -> float:
    """The size, without its sign, that all but this share of columns are below. In steps of 0.05.

    Chance adds to the squares of all sizes alike, so the part that it makes of their mean is taken from each.
    """
    clusters = rows["clusters"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = np.abs(rows["difference"].to_numpy()) / (rows["error"].to_numpy() * clusters**0.5)
    known = np.isfinite(sizes)
    if not known.any():
        return float("nan")
    sizes, clusters = sizes[known], clusters[known]
    by_chance = ((clusters - 1) / ((clusters - 3) * clusters)).mean()  # t squared has this mean, by clusters
    square = (sizes**2).mean()
    real = max(0.0, 1 - by_chance / square) if square > 0 else 0.0
    reached = float(np.quantile(sizes, quantile)) * real**0.5
    return float(round(20 * reached) / 20)
