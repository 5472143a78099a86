"""How far what was measured is from eager attention, how far it may be, and the errors for what is further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from attnscope.attention.backends import BACKENDS
from attnscope.attention.blame import not_finite
from attnscope.attention.eager import EagerModules
from attnscope.attention.eager_reference import EagerRecorder
from attnscope.attention.forward import Forward
from attnscope.attention.probe import Probe
from attnscope.errors import AttnscopeError
from attnscope.measures import MEASURES, Measure
from attnscope.measures.received import RECEIVED

FLOOR = 2e-6  # of the largest value: float32 sums in another order
TIMES = 8.0  # eager's own rounding that a reading may be off by
UNKNOWN = 1e-4  # of the largest value, where float64 can't say what eager's rounding is
COARSE = 0.1  # where not even float32 can be had: eager attention in 16 bits is itself off by some hundredths


@dataclass(frozen=True)
class Sides:
    """What is compared: our numbers, eager's, and eager's in float64."""

    measured: Forward
    blocks: Forward
    """Measured again in small blocks: a probe is shorter than a block, and prompts are longer."""
    reference: EagerRecorder
    exact: EagerRecorder | None
    reason: str | None
    way: str
    eager: EagerModules | None
    coarse: bool
    """Whether both sides are in 16 bits, because float32 could not be had."""


@dataclass(frozen=True)
class Distance:
    """Of one measure: the largest distance from eager attention, and what it may be."""

    distance: float
    limit: float
    rounding: float | None
    """Eager's own: the largest distance of its float32 numbers from its float64 ones; None if that can't be had."""


def refuse_if_apart(model: PreTrainedModel, name: str, probe: Probe, sides: Sides) -> dict[str, Distance]:
    """By measure; refused where one is further from eager attention than it may be."""
    truth = sides.exact or sides.reference
    distances = {}
    for measure in probe.measures:
        found = distances[measure.name] = _distance_of(measure, probe, sides)
        if not found.distance <= found.limit:
            side = max((sides.measured, sides.blocks), key=lambda each: _furthest(each, truth, measure, probe.layers))
            place = _worst(side, truth, measure, probe.layers)
            backend = side.layers[place[0]].backend
            if backend not in BACKENDS.built_in:
                what = f"is {found.distance:.1e} off eager attention in layer {place[0]}, head {place[1]} of {name}"
                raise BACKENDS.mistake(backend, f"attend: {measure.name}", what, f"at most {found.limit:.1e}")
            raise _wrong(model, name, measure, found, place, padded=probe.left)
    return distances


def _distance_of(measure: Measure, probe: Probe, sides: Sides) -> Distance:
    truth, layers = sides.exact or sides.reference, probe.layers
    scale = max(1.0, most([float(truth.results[layer].values[measure.name].abs().max()) for layer in layers]))
    distance = most(
        [_distance(side, truth, measure, layer) for layer in layers for side in (sides.measured, sides.blocks)]
    )
    if sides.exact is None:
        share = COARSE if sides.coarse else probe.limit or UNKNOWN
        return Distance(distance, share * scale, None)
    rounding = most([_distance(sides.reference, truth, measure, layer) for layer in layers])
    return Distance(distance, max(FLOOR * scale, TIMES * rounding), rounding)


def _distance(side: Forward | EagerRecorder, truth: EagerRecorder, measure: Measure, layer: int) -> float:
    """NaN if anything is NaN. What near-ties can move is not counted."""
    results = side.layers if isinstance(side, Forward) else side.results
    apart = (results[layer].values[measure.name].double() - truth.results[layer].values[measure.name].double()).abs()
    slack = truth.slack.get((layer, measure.name))
    if slack is not None:
        apart = torch.where(apart.isnan(), apart, (apart - (slack[..., None] if apart.dim() == 4 else slack)).relu())
    return float(apart.max())


def _furthest(side: Forward, truth: EagerRecorder, measure: Measure, layers: Sequence[int]) -> float:
    """The largest distance; infinite if anything is NaN."""
    distance = most([_distance(side, truth, measure, layer) for layer in layers])
    return float("inf") if distance != distance else distance


def most(values: Sequence[float]) -> float:
    """The largest; NaN if one of them is."""
    return float(torch.tensor(list(values) or [0.0], dtype=torch.float64).max())


def _worst(measured: Forward, truth: EagerRecorder, measure: Measure, layers: Sequence[int]) -> tuple[int, int]:
    """The layer and head that differ most, or the first that is not a number."""
    worst, place = -1.0, (layers[0], 0)
    for layer in layers:
        one, two = measured.layers[layer].values[measure.name], truth.results[layer].values[measure.name]
        apart = (one.double() - two.double()).abs().transpose(0, 1).flatten(1).amax(1)  # (heads,)
        for head, value in enumerate(apart.tolist()):
            if value != value:
                return layer, head
            if value > worst:
                worst, place = value, (layer, head)
    return place


def _wrong(
    model: PreTrainedModel, name: str, measure: Measure, found: Distance, place: tuple[int, int], *, padded: bool
) -> AttnscopeError:
    distance, limit = found.distance, found.limit
    where = f"layer {place[0]}, head {place[1]}"
    if measure is not RECEIVED:  # the attention it is computed from has been compared already
        if distance != distance:
            return not_finite(measure, f"{where} of {name}")
        what = f"has a block and a reference that differ by {distance:.1e} in {where} of {name}"
        return MEASURES.mistake(measure.name, "block and reference", what, f"at most {limit:.1e}")
    if distance != distance:
        return AttnscopeError(
            f"{name} computes numbers that are not finite" + (" beside pads" if padded else ""),
            where=where,
            allowed="finite weights and activations",
            todo="run its prompts one by one, or in float32" if padded else "check its weights, or try another dtype",
        )
    return AttnscopeError(
        f"{name} can't be read exactly: its attention and {type(model).__name__}'s eager attention differ by "
        f"{distance:.1e}",
        where=where,
        allowed=f"at most {limit:.1e}",
        todo="choose another model",
    )
