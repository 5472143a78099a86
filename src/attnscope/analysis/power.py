"""Before a run: the smallest q it can reach, the chance to find an effect, and how many prompts that takes.

The unit is the cluster, as in all tests; without clusters, the prompt. Sizes are in standard deviations of the
differences within clusters. The chance is that of a t test at the level that q < 0.05 takes among so many tests; what
is tested in fact, a bootstrap, has nearly the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import nctdtr, stdtrit

from attnscope.analysis.comparisons import Compared
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, needed
from attnscope.analysis.effects import FEWEST
from attnscope.analysis.sides import MASS

SIZES = (0.3, 0.5, 0.8)
"""Without a pilot: small, medium and large effects."""
CHANCE = 0.8
MOST = 100_000  # clusters


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
        Target("a tenth of all heads", FALSE_DISCOVERIES / 10),
        Target("a single head", FALSE_DISCOVERIES / (heads * classes)),
    ]


def power(size: float, clusters: int, level: float) -> float:
    """The chance that an effect of this size is found with so many clusters."""
    if clusters < FEWEST or 2.0 ** (1 - clusters) > level:
        return 0.0
    edge, shift = stdtrit(clusters - 1, 1 - level / 2), abs(size) * clusters**0.5
    return float(1 - nctdtr(clusters - 1, shift, edge) + nctdtr(clusters - 1, shift, -edge))


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
    """What a pilot suggests about one class of one comparison. Sizes are corrected for the pilot's own chance."""

    comparison: str
    token_class: str
    mean: float
    """The size of the mean over heads."""
    head: float
    """The size that a tenth of the heads reach."""


def pilots(compared: Sequence[Compared], queries: str) -> list[Pilot]:
    """What the comparisons of a pilot run suggest, for masses that can be tested."""
    found = []
    for each in compared:
        for row in each.overall.iter_rows(named=True):
            if row["queries"] != queries or row["quantity"] != MASS or row["size"] is None:
                continue
            heads = each.heads.filter(
                (each.heads["queries"] == queries)
                & (each.heads["quantity"] == MASS)
                & (each.heads["token_class"] == row["token_class"])
            )
            sizes = np.abs(heads["size"].drop_nulls().to_numpy())
            if len(sizes) and row["difference"]:
                tenth = _corrected(float(np.quantile(sizes, 0.9)), row["clusters"])
                found.append(
                    Pilot(each.comparison.name, row["token_class"], _corrected(row["size"], row["clusters"]), tenth)
                )
    return found


def _corrected(size: float, clusters: int) -> float:
    """An observed size is too large on average: its square by one in `clusters`."""
    return float(max(0.0, size**2 - 1 / clusters) ** 0.5)
