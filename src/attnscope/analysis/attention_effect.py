"""Does attention predict effect? Over heads: what a head looks at, against what switching it off does to the answer.

Heads of one model are not independent samples of anything, so no correlation over them has a textbook p. What varies
here are prompts: clusters of them are drawn, both means of every head are taken over what was drawn, and the
correlation is computed again. Its interval says how far it depends on these prompts, for these heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.measures import measure_values
from attnscope.analysis.outcomes import outcomes
from attnscope.analysis.sides import Side
from attnscope.analysis.spread import CONFIDENCE, mean_of_seen
from attnscope.study.independence import testable
from attnscope.study.interventions import Score

Floats = NDArray[np.float64]

DRAWS = 2999
FEWEST_HEADS = 3  # of fewer, a correlation is always 1 or -1
_NEARLY = 1 - 1e-9  # of a correlation of 1, Fisher's z is infinite


@dataclass(frozen=True)
class HeadPairs:
    """Attention and effect of the heads that have both, in the prompts that have both: (prompts, heads)."""

    heads: tuple[tuple[int, int], ...]
    """Layer and head."""
    prompts: NDArray[np.int64]
    attention: Floats
    effect: Floats


@dataclass(frozen=True)
class Correlation:
    """A correlation over heads. None where there is none: nothing varies, or there are too few heads or clusters."""

    value: float | None
    low: float | None
    high: float | None


def head_pairs(
    side: Side, intervention: str, score: Score, queries: str, names: Sequence[str], *, enrichment: bool, where: str
) -> HeadPairs:
    """intervention: one that sweeps over heads. names: a measure, or classes to sum."""
    numbers = measure_values(side, queries, names, enrichment=enrichment, where=where)
    swept = outcomes(side, intervention, score)
    prompts, mine, theirs = np.intersect1d(numbers.prompts, swept.prompts, return_indices=True)
    layers, heads = side.run.layers(side.model), side.run.heads(side.model)
    known = [each for each in swept.places if each.layer in layers and each.head in heads]
    named = tuple((each.layer, each.head) for each in known if each.layer is not None and each.head is not None)
    at = [layers.index(layer) for layer, _ in named], [heads.index(head) for _, head in named]
    attention = numbers.values[mine][:, *at]
    effect = swept.values[theirs][:, [swept.places.index(each) for each in known]]
    both = ~np.isnan(attention) & ~np.isnan(effect)
    some, measured = np.flatnonzero(both.any(1)), np.flatnonzero(both.any(0))
    attention, effect = (np.where(both, each, np.nan)[some][:, measured] for each in (attention, effect))
    shown = tuple(named[place] for place in measured)
    return HeadPairs(shown, prompts[some], attention, effect)


def correlations(pairs: HeadPairs, clusters: NDArray[np.int64], *, seed: int = 0) -> dict[str, Correlation]:
    """`spearman` and `pearson`, over heads, of the means over prompts. clusters: of each prompt."""
    means = [mean_of_seen(each, 0)[None] for each in (pairs.attention, pairs.effect)]
    sizes = np.unique(clusters, return_counts=True)[1].astype(np.float64)[:, None]
    enough = len(sizes) > 0 and bool(testable(sizes)[0])
    draws = _drawn_means(pairs, clusters, seed) if enough else None
    known = {}
    for name, of in (("spearman", _ranked), ("pearson", _as_they_are)):
        value = float(_correlation(of(means[0]), of(means[1]))[0])
        drawn = None if draws is None else _correlation(of(draws[0]), of(draws[1]))
        known[name] = _with_ends(value, drawn)
    return known


def _drawn_means(pairs: HeadPairs, clusters: NDArray[np.int64], seed: int) -> tuple[Floats, Floats]:
    """(draws, heads): both means over the clusters drawn, each prompt counted as often as its cluster was drawn."""
    _, places = np.unique(clusters, return_inverse=True)
    count = int(places.max()) + 1
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
    of_prompts = weights[:, places].astype(np.float64)
    seen = of_prompts @ (~np.isnan(pairs.effect)).astype(np.float64)  # a head has both in the same prompts
    attention, effect = (
        np.divide(of_prompts @ np.nan_to_num(each), seen, out=np.full(seen.shape, np.nan), where=seen > 0)
        for each in (pairs.attention, pairs.effect)
    )
    return attention, effect


def _with_ends(value: float, drawn: Floats | None) -> Correlation:
    """The interval that reaches further on each side: that of the draws, or the same turned round the value.

    Draws add the noise of few prompts a second time, so theirs is too close to 0 where there is a relation; the other
    is too far from it where there is none. Neither makes up for the noise that the value itself has.
    """
    if np.isnan(value):
        return Correlation(None, None, None)
    known = np.zeros(0) if drawn is None else drawn[~np.isnan(drawn)]
    if not len(known):
        return Correlation(value, None, None)
    z, middle = _fisher(known), _fisher(np.array([value]))[0]
    rate = (1 - CONFIDENCE) / 2
    low, high = np.quantile(z, [rate, 1 - rate])
    ends = np.tanh([min(low, 2 * middle - high), max(high, 2 * middle - low)])
    return Correlation(value, float(ends[0]), float(ends[1]))


def _fisher(values: Floats) -> Floats:
    z: Floats = np.arctanh(np.clip(values, -_NEARLY, _NEARLY))
    return z


def _as_they_are(values: Floats) -> Floats:
    return values


def _ranked(values: Floats) -> Floats:
    from scipy import stats  # takes a second to load, so not before it is needed

    ranks: Floats = stats.rankdata(values, axis=1, nan_policy="omit")
    return ranks


def _correlation(one: Floats, other: Floats) -> Floats:
    """Of each row: (draws,); NaN where something has no value, does not vary, or there are too few heads."""
    if one.shape[1] < FEWEST_HEADS:
        return np.full(len(one), np.nan)
    apart = [each - each.mean(1, keepdims=True) for each in (one, other)]
    spread = [np.sqrt((each**2).sum(1)) for each in apart]
    varies = [size > 1e-12 * np.abs(each).max(1) for size, each in zip(spread, (one, other), strict=True)]
    product = spread[0] * spread[1]
    known, nothing = varies[0] & varies[1] & (product > 0), np.full(len(one), np.nan)
    value: Floats = np.divide((apart[0] * apart[1]).sum(1), product, out=nothing, where=known)
    return value
