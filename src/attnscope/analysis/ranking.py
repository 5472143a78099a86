"""Heads ranked by an effect, and how reliable the ranking is.

A head shown because it stands out was selected; its rank among all heads shows how strongly. A distance is never
negative, so heads that merely vary much come first, in a reliable order, even where nothing but chance differs. So the
distance of a control is subtracted where the run has one, see `placebo`. Heads are chosen on one half of the prompts,
and their effect on the other half is given with it.

The reliability of the ranking is split-half: prompts are split in two at random many times, heads are ranked in both
halves, and the rank correlation (Spearman) is extrapolated to all prompts (Spearman-Brown).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.dense import dense
from attnscope.analysis.halves import first_half
from attnscope.analysis.placebo import null_of
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
    halves: dict[tuple[int, int], tuple[float, float]] | None = None
    """The effect in the half of the prompts that heads are chosen on, and in the other; None with too few to split."""
    beyond: tuple[str, str] | None = None
    """The conditions whose distance was subtracted, if any."""

    @property
    def of(self) -> int:
        return len(self.effect)

    @property
    def typical(self) -> float:
        """The median effect."""
        return float(np.median(list(self.effect.values())))

    def top(self, count: int) -> list[tuple[int, int]]:
        """The heads with the largest effect in the half that heads are chosen on, as (layer, head)."""
        if self.halves is None:
            return sorted(self.rank, key=lambda place: (self.rank[place], place))[:count]
        chosen = self.halves
        return sorted(self.rank, key=lambda place: (-chosen[place][0], place))[:count]


def ranking(
    values: NDArray[np.float64],
    layers: Sequence[int],
    heads: Sequence[int],
    seed: int = 0,
    first: NDArray[np.bool_] | None = None,
    clusters: NDArray[np.int64] | None = None,
) -> Ranking:
    """Rank heads by an effect per prompt, (prompts, layers, heads), the largest first.

    first: the prompts that heads are chosen on. clusters: each prompt's; its own by default.
    """
    from scipy.stats import rankdata  # takes a second to load, so not before it is needed

    if not len(values):
        return Ranking({}, {}, None)
    effect = np.nan_to_num(mean_of_seen(values, 0))
    places = [(layer, head) for layer in layers for head in heads]
    of_halves = None
    if first is not None:
        one, two = (np.nan_to_num(mean_of_seen(values[rows], 0)).ravel().tolist() for rows in (first, ~first))
        of_halves = dict(zip(places, zip(one, two, strict=True), strict=True))
    ranks = rankdata(-effect.ravel(), method="min").astype(int)
    return Ranking(
        dict(zip(places, effect.ravel().tolist(), strict=True)),
        {place: int(rank) for place, rank, has in zip(places, ranks, effect.ravel() != 0, strict=True) if has},
        reliability(values.reshape(len(values), -1)[:, (effect != 0).ravel()], seed, clusters),
        of_halves,
    )


def reliability(values: NDArray[np.float64], seed: int, clusters: NDArray[np.int64] | None = None) -> float | None:
    """The reliability of ranking heads by their signed mean over prompts; values: (prompts, heads).

    Ranked by absolute value, heads without an effect would have a reliable order too: that of their variance. Halves
    are of whole clusters, as what a cluster's prompts have in common would be in both.
    """
    from scipy.stats import rankdata

    known = ~np.isnan(values).all(1)  # a prompt without the class has no value in any head
    values, clusters = values[known], None if clusters is None else clusters[known]
    values = values[:, ~np.isnan(values).any(0)]
    prompts, heads = values.shape
    groups, cluster = np.unique(np.arange(prompts) if clusters is None else clusters, return_inverse=True)
    if len(groups) < FEWEST or heads < 3 or not np.ptp(values.mean(0)):
        return None
    chance = np.random.default_rng(seed)
    halves = np.zeros((2, SPLITS, prompts))
    for split in range(SPLITS):
        order = chance.permutation(len(groups))
        for half, some in enumerate((order[: len(groups) // 2], order[len(groups) // 2 :])):
            members = np.isin(cluster, some)
            halves[half, split, members] = 1 / members.sum()
    first, second = (rankdata(each @ values, axis=1) for each in halves)
    first, second = (each - each.mean(1, keepdims=True) for each in (first, second))
    lengths = np.sqrt((first**2).sum(1) * (second**2).sum(1))
    both = np.divide((first * second).sum(1), lengths, out=np.zeros(SPLITS), where=lengths > 0)
    middle = max(0.0, float(both.mean()))
    return 2 * middle / (1 + middle)


@lru_cache(maxsize=16)
def ranked_by_distance(run: Run, model: str, queries: str, over: str, one: str, two: str) -> Ranking:
    """A model's heads by how differently they attend to the same tokens under two conditions, beyond the null."""
    every = HeadChoice(model, queries, run.layers(model), run.heads(model), over)
    prompts, values = _distances(run, every, one, two)
    null = null_of(run, one, two)
    if null is not None:
        theirs, control = _distances(run, every, *null)
        prompts, mine, others = np.intersect1d(prompts, theirs, return_indices=True)
        values = values[mine] - control[others]
    clusters = run.clusters(prompts)
    first = first_half(clusters, run.study.seed)
    ranked = ranking(values, every.layers, every.heads, run.study.seed, first, clusters)
    return replace(ranked, beyond=null)


def _distances(run: Run, chosen: HeadChoice, one: str, two: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Prompts, and (prompts, layers, heads): the mean distance between two conditions over the tokens they share."""
    having = (run.having(chosen.model, name, chosen.queries) for name in (one, two))
    prompts = sorted(set.intersection(*having))

    def distances() -> pl.DataFrame:
        apart = dict(_distances_by_prompt(run, chosen, one, two))
        numbers = np.stack(list(apart.values())) if apart else np.zeros(0)
        return by_head(list(apart), chosen, {"distance": numbers})

    rows = cached_result(run, ("distances", chosen.model, chosen.queries, chosen.over, one, two), distances)
    axes: dict[str, Sequence[Any]] = {"prompt": prompts, "layer": chosen.layers, "head": chosen.heads}
    (values,) = dense(rows, axes, ["distance"], f"{run.path}: distances", missing=True)
    return np.asarray(prompts, dtype=np.int64), values


def _distances_by_prompt(run: Run, chosen: HeadChoice, one: str, two: str) -> Iterator[tuple[int, NDArray[np.float64]]]:
    for first, second in read_paired_attention(run, chosen, one, two):
        shared, mine, others = np.intersect1d(first.base, second.base, return_indices=True)
        aligned = shared >= 0
        with np.errstate(invalid="ignore"):
            apart = np.abs(first.attention[..., mine[aligned]] - second.attention[..., others[aligned]])
        yield first.prompt, mean_of_seen(apart, -1)
