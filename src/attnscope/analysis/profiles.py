"""Every head of a model along the prompt at once: means over prompts, one prompt after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.received import Heads, gazes
from attnscope.analysis.run import Run

REACHED = 0.5  # of the prompts must be so long for a position to be shown


@dataclass(frozen=True)
class Profile:
    """(layers, heads, positions); NaN where no query of any prompt sees the token."""

    mean: NDArray[np.float64]
    n: NDArray[np.int64]
    """(positions,): how many prompts have the position."""

    @property
    def shown(self) -> NDArray[np.int64]:
        """Positions that enough prompts have."""
        return shown(self.n)


def shown(n: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions that enough prompts have, of how many have each."""
    return np.flatnonzero((n > 0) & (n >= REACHED * n.max(initial=0)))


def profile_of(run: Run, chosen: Heads, condition: str) -> Profile:
    """On the prompt's own positions."""
    shape = (len(chosen.layers), len(chosen.heads))
    total, count = np.zeros((*shape, 0)), np.zeros((*shape, 0))
    for gaze in gazes(run, chosen, condition):
        more = gaze.attention.shape[-1] - total.shape[-1]
        if more > 0:
            total, count = (np.pad(each, ((0, 0), (0, 0), (0, more))) for each in (total, count))
        there = ~np.isnan(gaze.attention)
        reach = np.s_[..., : gaze.attention.shape[-1]]
        total[reach] += np.where(there, gaze.attention, 0)
        count[reach] += there
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return Profile(mean, count.max((0, 1), initial=0).astype(np.int64))
