"""Which head of one model is compared with which of another; the method has a name that figures tell.

A model and its fine-tune have the same heads under the same numbers. They share a weight file, or else it can be seen:
where heads of one number behave alike (of all heads in the layer, the one with the nearest mean masses by class), they
are matched by number. Otherwise numbers mean nothing, and within layers of the same relative depth heads are paired
such that their mean masses differ least in sum. Such pairs were chosen to be alike, so what still differs is rather
too small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.sides import Side, base_condition, masses
from attnscope.study.schema import layer_at

BY_NUMBER = "heads matched by number"
BY_BEHAVIOUR = "layers matched by relative depth, heads by behaviour (mean mass by class, on these prompts)"
ALIKE = 0.5  # the share of heads that must have the other model's head of the same number as their nearest,
BY_CHANCE = 0.01  # and the probability that unrelated heads would have as many

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Matching:
    """For each pair, the places on the layers' and heads' axes of both arms; no head of the first is there twice."""

    method: str
    one: tuple[NDArray[np.int64], NDArray[np.int64]]
    two: tuple[NDArray[np.int64], NDArray[np.int64]]


def matched(one: Side, two: Side) -> Matching:
    """The heads of two arms."""
    if _shape(one) == _shape(two) and weights_of(one) & weights_of(two):
        return _by_number(one)  # the same model, or one with an adapter on it
    from scipy.optimize import linear_sum_assignment

    first, second = _profiles(one, two), _profiles(two, one)
    if _shape(one) == _shape(two) and _alike(first, second):
        return _by_number(one)
    pairs = []
    for layer, mine in enumerate(first):
        other = _opposite(one, two, layer)
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


def _opposite(one: Side, two: Side, place: int) -> int:
    """The place of the second model's measured layer that is nearest to one of the first in relative depth."""
    depth = one.run.layers(one.model)[place] / one.run.depth(one.model)
    wanted, measured = layer_at(depth, two.run.depth(two.model)), two.run.layers(two.model)
    return min(range(len(measured)), key=lambda each: abs(measured[each] - wanted))


def _alike(first: Numbers, second: Numbers) -> bool:
    """Whether most heads have the other model's head of their number as the nearest in its layer; ties count."""
    from scipy.stats import binomtest  # takes a second to load, so not before it is needed

    layers, heads = first.shape[:2]
    apart = np.abs(first[:, :, None] - second[:, None]).sum(-1)  # (layers, heads, heads)
    own = int((np.diagonal(apart, axis1=1, axis2=2) <= apart.min(2)).sum())
    unlikely = heads == 1 or binomtest(own, layers * heads, 1 / heads, alternative="greater").pvalue < BY_CHANCE
    return bool(own >= ALIKE * layers * heads and unlikely)


def _profiles(side: Side, other: Side) -> Numbers:
    """(layers, heads, query groups x classes that both arms have): mean mass over prompts."""
    condition = base_condition(side.run) or side.condition  # the same pairs under all conditions
    held = masses(side.run, side.model, condition)
    if not len(held.prompts):
        held = masses(side.run, side.model, side.condition)
    mean = held.mass.mean(0)  # (groups, layers, heads, classes)
    groups, classes = side.run.study.measure.queries, side.run.classes
    wanted = [
        mean[groups.index(group), :, :, classes.index(name)]
        for group in groups
        if group in other.run.study.measure.queries
        for name in classes
        if name in other.run.classes
    ]
    return np.stack(wanted, -1)
