"""Many tests at once: the false discovery rate, how few of a list can be true, and whether anything could be found.

q is by Benjamini and Hochberg: among all that is called significant, at most 5 % are false on average. In a single run
heads are correlated, so the share can be well above the average; `true_at_least` bounds it for the list at hand.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FALSE_DISCOVERIES = 0.05  # effects with a smaller q are called significant
SURENESS = 0.05  # how often a bound on a list may be wrong


def discoveries(p: Floats) -> Floats:
    """Q by Benjamini and Hochberg; NaN where nothing was tested."""
    from scipy import stats  # takes a second to load, so not before it is needed

    q = np.full(len(p), np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        q[tested] = stats.false_discovery_control(p[tested])
    return q


def true_at_least(p: Floats, chosen: NDArray[np.bool_]) -> int:
    """A lower bound on how many of the chosen columns have an effect, with 95 % confidence whatever was chosen.

    By closed testing with Simes' inequality (Goeman and others, 2019), which needs tests that are independent or
    positively correlated, as heads are.
    """
    tested = ~np.isnan(p)
    mine = np.sort(p[tested & chosen])
    if not len(mine):
        return 0
    scaled = _hommel(np.sort(p[tested])) * mine
    reached = np.searchsorted(scaled, SURENESS * np.arange(1, len(mine) + 1), side="right")
    return max(0, int((1 - np.arange(1, len(mine) + 1) + reached).max()))


def _hommel(ordered: Floats) -> int:
    """Hommel's number: how many of the tests can be true nulls together without Simes' test rejecting them."""
    many = len(ordered)
    for count in range(many, 0, -1):
        steps = np.arange(1, count + 1)
        if (count * ordered[many - count :] > steps * SURENESS).all():
            return count
    return 0


def needed(smallest: float, tested: int) -> int:
    """How many of the tested columns must be at the smallest p for their q to be below FALSE_DISCOVERIES."""
    return max(1, math.floor(smallest * tested / FALSE_DISCOVERIES) + 1)
