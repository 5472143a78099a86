"""Heads chosen on one half of the prompts and tested on the other, so that choosing them can't flatter them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.discoveries import FALSE_DISCOVERIES, discoveries
from attnscope.analysis.effects import Clusters, effects
from attnscope.analysis.spread import mean_of_seen
from attnscope.study.independence import FEWEST

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Halves:
    """One entry per column."""

    first: Floats
    """The mean difference in the half that columns are chosen on."""
    second: Floats
    """The mean difference in the other half."""
    chosen: Flags
    """Significant in the first half."""
    held: Flags
    """Chosen, and in the second half significant among the chosen, with the same sign."""


def first_half(clusters: Clusters, seed: int) -> Flags | None:
    """Which prompts are in the first half: whole clusters, drawn at random. None if there are too few for two tests."""
    names = np.unique(clusters)
    if len(names) < 2 * FEWEST:
        return None
    drawn = np.random.default_rng([seed, 2]).permutation(names)[: len(names) // 2]
    return np.isin(clusters, drawn)


def halves(
    differences: Floats, clusters: Clusters, pools: Sequence[Hashable] | None = None, seed: int = 0
) -> Halves | None:
    """differences: (prompts, columns), NaN where a prompt has none. pools: the kind of each column."""
    first = first_half(clusters, seed)
    if first is None:
        return None
    one, two = (
        effects(differences[rows], clusters=clusters[rows], pools=pools, seed=seed + turn)
        for turn, rows in enumerate((first, ~first))
    )
    chosen = one.q < FALSE_DISCOVERIES
    again = np.where(chosen & (np.sign(one.mean) == np.sign(two.mean)), two.p, np.where(chosen, 1.0, np.nan))
    with np.errstate(invalid="ignore"):
        held = discoveries(again) < FALSE_DISCOVERIES
    means = [mean_of_seen(differences[rows], 0) for rows in (first, ~first)]
    return Halves(means[0], means[1], np.asarray(chosen), np.asarray(held))
