"""How a class's mass differs between two sides, layer by layer: mean over heads, within prompts.

What is tested together does not depend on what a figure shows: all classes and sets in all measured layers, and with
them, if it is asked for, a sum of classes in all these layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.discoveries import discoveries
from attnscope.analysis.effects import effects
from attnscope.analysis.matching import opposite
from attnscope.analysis.one_way import by_edits_alone
from attnscope.analysis.sides import Side, masses
from attnscope.analysis.spread import cut_to_differences, mean_of_seen

Floats = NDArray[np.float64]
Names = tuple[str, ...]
"""One class or set, or several classes that are added up."""
Heads = tuple[tuple[int, ...], tuple[int, ...]]
"""The heads of both sides that a mean is over."""
Layers = tuple[int, int]
"""A layer of each side."""


@dataclass(frozen=True)
class LayerChange:
    """The second side minus the first one in one layer. None where there is no test."""

    n: int
    mean: float | None
    low: float | None
    high: float | None
    q: float | None


@lru_cache(maxsize=64)
def layer_changes(
    one: Side, two: Side, queries: str, names: Names, heads: Heads, more: tuple[Layers, ...] = ()
) -> Mapping[Layers, LayerChange]:
    """By layers: those that are compared anyway, and each of `more` as if it was asked for alone."""
    usual = _usual_layers(one, two)
    found = _tested(one, two, queries, names, heads, usual)
    for pair in more:
        if pair not in found:
            found[pair] = _tested(one, two, queries, names, heads, (*usual, pair))[pair]
    return found


def _usual_layers(one: Side, two: Side) -> tuple[Layers, ...]:
    """Each layer of the first side with that of the same number, or else of the same relative depth."""
    first, second = one.run.layers(one.model), two.run.layers(two.model)
    if one.run.depth(one.model) == two.run.depth(two.model):
        return tuple((layer, layer) for layer in first if layer in second)
    return tuple((layer, second[opposite(one, two, place)]) for place, layer in enumerate(first))


def _tested(
    one: Side, two: Side, queries: str, names: Names, heads: Heads, layers: tuple[Layers, ...]
) -> dict[Layers, LayerChange]:
    """The changes that are asked for, tested with those of every class and set."""
    if not layers:
        return {}
    kinds = dict.fromkeys([names, *((name,) for name in one.run.token_sets)])
    untested = {kind for kind in kinds if by_edits_alone(one, two, queries, kind)}
    shown = [kind for kind in kinds if kind == names or kind not in untested]
    first, second = (masses(each.run, each.model, each.condition, queries).prompts for each in (one, two))
    changes = [_change(one, two, queries, kind, heads, layers) for kind in shown]
    pools = [place for place in range(len(shown)) for _ in layers]
    clusters = one.run.clusters(np.intersect1d(first, second))
    found = effects(np.concatenate(changes, 1), clusters=clusters, pools=pools, seed=one.run.study.seed)
    p = np.where([shown[place] in untested for place in pools], np.nan, found.p)
    low, high = cut_to_differences(found.low, found.high)
    numbers = [found.n.tolist(), *(map(_known, each) for each in (found.mean, low, high, discoveries(p)))]
    return dict(zip(layers, (LayerChange(*each) for each in zip(*numbers, strict=True)), strict=False))


def _change(one: Side, two: Side, queries: str, names: Names, heads: Heads, layers: tuple[Layers, ...]) -> Floats:
    """(prompts that both have, layers)."""
    means = []
    for place, side in enumerate((one, two)):
        arrays = masses(side.run, side.model, side.condition, queries)
        rows = [side.run.layers(side.model).index(pair[place]) for pair in layers]
        columns = [side.run.heads(side.model).index(head) for head in heads[place]]
        means.append((arrays.prompts, mean_of_seen(arrays.of(names)[0][:, rows][:, :, columns], 2)))
    (prompts, first), (others, second) = means
    _, mine, theirs = np.intersect1d(prompts, others, return_indices=True)
    change: Floats = second[theirs] - first[mine]
    return change


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
