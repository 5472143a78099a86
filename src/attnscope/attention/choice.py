"""Chooses the next token of an answer from logits: the likeliest one, or one drawn with a seed.

Rounding differs a little with the prompts that share a forward. So a choice also says whether it is certain: whether
logits that are off by `slack` would lead to the same token. Whoever asks can compute better logits if it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attnscope.study.sampling import Sample

Logits = NDArray[np.float64]
"""(vocabulary,): of one prompt."""


Chosen = tuple[int, bool]
"""A token, and whether it is certain."""


class Choice(Protocol):
    """Chooses tokens."""

    def choose(self, logits: Tensor, prompts: Sequence[int], step: int, slack: Sequence[float]) -> list[Chosen]:
        """A token for each row of logits.

        logits: (rows, vocabulary). prompts: the number of each row's prompt. step: how many tokens came before.
        slack: how far the logits of each row may be off.
        """


class Greedy:
    """Always the likeliest token."""

    def choose(self, logits: Tensor, prompts: Sequence[int], step: int, slack: Sequence[float]) -> list[Chosen]:
        two = logits.topk(2, dim=-1)
        tokens, values = two.indices[:, 0].tolist(), two.values.tolist()
        return [
            (token, best - second >= least) for token, (best, second), least in zip(tokens, values, slack, strict=True)
        ]


class Drawn:
    """A token drawn at random. Each prompt has a seed, so what it gets does not depend on the others."""

    def __init__(self, sample: Sample, seeds: Sequence[int]) -> None:
        self.sample, self.seeds = sample, seeds

    def choose(self, logits: Tensor, prompts: Sequence[int], step: int, slack: Sequence[float]) -> list[Chosen]:
        rows = logits.double().cpu().numpy()
        return [
            draw(row, self.sample, noise(self.seeds[prompt], step, len(row)), least)
            for row, prompt, least in zip(rows, prompts, slack, strict=True)
        ]


def noise(seed: int, step: int, vocabulary: int) -> Logits:
    """Gumbel noise: the largest of logits plus noise is a draw from their softmax."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(step,)))
    gumbel: Logits = -np.log(rng.standard_exponential(vocabulary))
    return gumbel


def draw(logits: Logits, sample: Sample, noise: Logits, slack: float) -> Chosen:
    """The token drawn, and whether logits that are off by `slack` would give the same one."""
    scaled, slack = logits / sample.temperature, slack / sample.temperature
    surely, least, perhaps = limits(scaled, sample, slack)
    luck = scaled + noise
    token = int(np.where(scaled >= least, luck, -np.inf).argmax())
    rivals = np.where(scaled >= perhaps, luck, -np.inf)
    rivals[token] = -np.inf
    return token, bool(scaled[token] >= surely and luck[token] - rivals.max() >= slack)


def limits(scaled: Logits, sample: Sample, slack: float) -> tuple[float, float, float]:
    """The least logit that top_k and top_p leave: whatever the rounding, as given, and with rounding in its favour."""
    size = len(scaled)
    count = min(sample.top_k or size, size)
    if count == size and sample.top_p is None:
        return -np.inf, -np.inf, -np.inf
    reach = min(count + 1, size)  # one more, to see how close the next one is
    ordered = -np.sort(-(scaled if reach == size else np.partition(scaled, size - reach)[size - reach :]))
    fewest = most = count
    if sample.top_p is not None:
        weights = np.exp(ordered[:count] - ordered[0])
        reached = weights.cumsum() / weights.sum()
        bounds = sample.top_p + np.array([-1, 0, 1]) * slack  # twice what logits that are off can do to a share
        fewest, count, most = np.minimum(np.searchsorted(reached, bounds) + 1, count).tolist()
    surely = ordered[fewest] + slack if fewest < len(ordered) else -np.inf
    return float(surely), float(ordered[count - 1]), float(ordered[most - 1] - slack)
