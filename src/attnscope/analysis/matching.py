"""Which head of one model is compared with which head of another; figures name the method.

A model and its fine-tune have the same heads under the same numbers. If they share a weight file, or if heads of the
same number behave alike (each has the nearest mean masses by class among all heads of the layer), heads are matched by
number. Otherwise numbers mean nothing, and heads in layers of the same relative depth are paired such that the sum of
the differences of their mean masses is smallest. Such pairs were chosen to be alike, so the differences that remain are
underestimates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.sides import Side, base_condition, masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.study.schema import layer_at

BY_NUMBER = "heads matched by number"
BY_BEHAVIOUR = "layers matched by relative depth, heads by behaviour (mean mass by class, on these prompts)"
ALIKE = 0.5  # at least this share of heads must be nearest to the other model's head of the same number,
BY_CHANCE = 0.01  # and unrelated heads would be so with at most this probability

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Matching:
    """For each pair, the layer and head indices of both sides; no head of the first side occurs twice."""

    method: str
    one: tuple[NDArray[np.int64], NDArray[np.int64]]
    two: tuple[NDArray[np.int64], NDArray[np.int64]]


def matched(one: Side, two: Side) -> Matching:
    """Match the heads of two sides."""
    if _shape(one) == _shape(two) and weights_of(one) & weights_of(two):
        return _by_number(one)  # the same model, or one with an adapter on it
    from scipy.optimize import linear_sum_assignment

    first, second = _profiles(one, two), _profiles(two, one)
    if _shape(one) == _shape(two) and _alike(first, second):
        return _by_number(one)
    pairs = []
    for layer, mine in enumerate(first):
        other = opposite(one, two, layer)
        apart = np.abs(mine[:, None] - second[other][None]).sum(-1)
        pairs += [(layer, row, other, column) for row, column in zip(*linear_sum_assignment(apart), strict=True)]
    places = np.array(pairs, dtype=np.int64).T
    return Matching(BY_BEHAVIOUR, (places[0], places[1]), (places[2], places[3]))


def weights_of(side: Side) -> set[str]:
    """The hashes of a model's weight files."""
    return side.run.manifest.models[side.model].weights


def _by_number(side: Side) -> Matching:
    layers, heads = (
        each.ravel() for each in np.indices((len(side.run.layers(side.model)), len(side.run.heads(side.model))))
    )
    return Matching(BY_NUMBER, (layers, heads), (layers, heads))


def _shape(side: Side) -> tuple[int, list[int], list[int]]:
    return side.run.depth(side.model), side.run.layers(side.model), side.run.heads(side.model)


def opposite(one: Side, two: Side, place: int) -> int:
    """The index of the second model's measured layer that is nearest in relative depth to a layer of the first."""
    depth = one.run.layers(one.model)[place] / one.run.depth(one.model)
    wanted, measured = layer_at(depth, two.run.depth(two.model)), two.run.layers(two.model)
    return min(range(len(measured)), key=lambda each: abs(measured[each] - wanted))


def _alike(first: Floats, second: Floats) -> bool:
    """Whether most heads are nearest to the other model's head of the same number in their layer; ties count."""
    from scipy.stats import binomtest  # takes a second to load, so not before it is needed

    layers, heads = first.shape[:2]
    apart = np.abs(first[:, :, None] - second[:, None]).sum(-1)  # (layers, heads, heads)
    own = int((np.diagonal(apart, axis1=1, axis2=2) <= apart.min(2)).sum())
    unlikely = heads == 1 or binomtest(own, layers * heads, 1 / heads, alternative="greater").pvalue < BY_CHANCE
    return bool(own >= ALIKE * layers * heads and unlikely)


def _profiles(side: Side, other: Side) -> Floats:
    """(layers, heads, query groups x classes that both sides have): mean mass over prompts."""
    condition = base_condition(side.run) or side.condition  # the same pairs under all conditions
    condition = condition if side.run.has(side.model, condition) else side.condition
    names = [name for name in side.run.classes if name in other.run.classes]
    wanted = []
    for group in side.run.queries:
        if group in other.run.queries:
            arrays = masses(side.run, side.model, condition, group)
            wanted += [np.nan_to_num(mean_of_seen(arrays.of([name])[0], 0)) for name in names]
    return np.stack(wanted, -1)
