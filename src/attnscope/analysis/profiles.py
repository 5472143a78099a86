"""Every head of a model along the prompt: means over prompts, read one prompt at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.received import HeadChoice, read_attention
from attnscope.analysis.run import Run

REACHED = 0.5  # a position is shown if at least this share of the prompts reach it


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
    """Positions that enough prompts have. n: how many prompts have each position."""
    return np.flatnonzero((n > 0) & (n >= REACHED * n.max(initial=0)))


def profile_of(run: Run, chosen: HeadChoice, condition: str) -> Profile:
    """Means over prompts, by position in the prompt."""
    shape = (len(chosen.layers), len(chosen.heads))
    total, count = np.zeros((*shape, 0)), np.zeros((*shape, 0))
    for prompt_attention in read_attention(run, chosen, condition):
        more = prompt_attention.attention.shape[-1] - total.shape[-1]
        if more > 0:
            total, count = (np.pad(each, ((0, 0), (0, 0), (0, more))) for each in (total, count))
        defined = ~np.isnan(prompt_attention.attention)
        reach = np.s_[..., : prompt_attention.attention.shape[-1]]
        total[reach] += np.where(defined, prompt_attention.attention, 0)
        count[reach] += defined
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return Profile(mean, count.max((0, 1), initial=0).astype(np.int64))
