"""Heads ranked by an effect, and how reliable the ranking is.

A head shown because it stands out was selected; its rank among all heads shows how strongly. The reliability of the
ranking is split-half: prompts are split in two at random many times, heads are ranked in both halves, and the rank
correlation (Spearman) is extrapolated to all prompts (Spearman-Brown).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.dense import dense
from attnscope.analysis.received import HeadChoice, by_head, read_paired_attention
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen

SPLITS = 100
FEWEST = 4  # the fewest prompts that can be split in two


@dataclass(frozen=True)
class Ranking:
    """Heads by (layer, head). A head without an effect has no rank; heads with the same effect share one."""

    effect: dict[tuple[int, int], float]
    rank: dict[tuple[int, int], int]
    reliability: float | None
    """From 0 (chance) to 1, over the ranked heads; None with fewer than four prompts or three ranked heads."""

    @property
    def of(self) -> int:
        return len(self.effect)

    @property
    def typical(self) -> float:
        """The median effect."""
        return float(np.median(list(self.effect.values())))

    def top(self, count: int) -> list[tuple[int, int]]:
        """The heads with the largest effect, as (layer, head)."""
        return sorted(self.rank, key=lambda place: (self.rank[place], place))[:count]


def ranking(values: NDArray[np.float64], layers: Sequence[int], heads: Sequence[int], seed: int = 0) -> Ranking:
    """Rank heads by an effect per prompt, (prompts, layers, heads), the largest first."""
    from scipy.stats import rankdata  # takes a second to load, so not before it is needed

    if not len(values):
        return Ranking({}, {}, None)
    effect = np.nan_to_num(mean_of_seen(values, 0))
    places = [(layer, head) for layer in layers for head in heads]
    ranks = rankdata(-effect.ravel(), method="min").astype(int)
    return Ranking(
        dict(zip(places, effect.ravel().tolist(), strict=True)),
        {place: int(rank) for place, rank, has in zip(places, ranks, effect.ravel() != 0, strict=True) if has},
        reliability(values.reshape(len(values), -1)[:, (effect != 0).ravel()], seed),
    )


def reliability(values: NDArray[np.float64], seed: int) -> float | None:
    """The reliability of ranking heads by their signed mean over prompts; values: (prompts, heads).

    Ranked by absolute value, heads without an effect would have a reliable order too: that of their variance.
    """
    from scipy.stats import rankdata

    values = values[:, ~np.isnan(values).any(0)]
    prompts, heads = values.shape
    if prompts < FEWEST or heads < 3 or not np.ptp(values.mean(0)):
        return None
    chance = np.random.default_rng(seed)
    halves = np.zeros((2, SPLITS, prompts))
    for split in range(SPLITS):
        order = chance.permutation(prompts)
        for half, some in enumerate((order[: prompts // 2], order[prompts // 2 :])):
            halves[half, split, some] = 1 / len(some)
    first, second = (rankdata(each @ values, axis=1) for each in halves)
    first, second = (each - each.mean(1, keepdims=True) for each in (first, second))
    lengths = np.sqrt((first**2).sum(1) * (second**2).sum(1))
    both = np.divide((first * second).sum(1), lengths, out=np.zeros(SPLITS), where=lengths > 0)
    middle = max(0.0, float(both.mean()))
    return 2 * middle / (1 + middle)


@lru_cache(maxsize=16)
def ranked_by_distance(run: Run, model: str, queries: str, over: str, one: str, two: str) -> Ranking:
    """A model's heads by how differently they attend to the same tokens under two conditions."""
    every = HeadChoice(model, queries, run.layers(model), run.heads(model), over)
    prompts = sorted(run.prompts(model, one) & run.prompts(model, two))

    def distances() -> pl.DataFrame:
        apart = dict(_distances(run, every, one, two))
        numbers = np.stack(list(apart.values())) if apart else np.zeros(0)
        return by_head(list(apart), every, {"distance": numbers})

    rows = cached_result(run, ("distances", model, queries, over, one, two), distances)
    axes: dict[str, Sequence[Any]] = {"prompt": prompts, "layer": every.layers, "head": every.heads}
    (values,) = dense(rows, axes, ["distance"], f"{run.path}: distances", missing=True)
    return ranking(values, every.layers, every.heads, run.study.seed)


def _distances(run: Run, chosen: HeadChoice, one: str, two: str) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Per prompt, (layers, heads): the mean distance between two conditions over the tokens they share."""
    for first, second in read_paired_attention(run, chosen, one, two):
        shared, mine, others = np.intersect1d(first.base, second.base, return_indices=True)
        aligned = shared >= 0
        with np.errstate(invalid="ignore"):
            apart = np.abs(first.attention[..., mine[aligned]] - second.attention[..., others[aligned]])
        yield first.prompt, mean_of_seen(apart, -1)
