"""Whether a model has the very weights an adapter was trained on.

Shapes don't show it: a model of the same architecture with other weights accepts the adapter and answers nonsense. So
an adapter can carry a projection of each weight of its base: the weight projected on fixed directions, and its length.
In units of that length, an unrelated weight of the same shape is about 1 away, and the same weight rounded to bfloat16
about 0.001.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import torch
from transformers import PreTrainedModel

METADATA = "attnscope_base"  # in the header of the adapter's safetensors file
CLOSE = 0.003  # root mean square over all weights; rounding stays below it, retraining and quantizing do not

Projections = dict[str, tuple[float, float]]
"""By the weight's name: its projection, and its length."""


def projections_of(model: PreTrainedModel) -> Projections:
    """The projection of every weight; dtypes differ only by rounding."""
    return {name: _projection(weight) for name, weight in model.named_parameters()}


def as_metadata(projections: Projections) -> dict[str, str]:
    """Projections as written to the header of an adapter's file."""
    return {
        METADATA: json.dumps({name: [float(f"{number:.7g}") for number in pair] for name, pair in projections.items()})
    }


def distance(model: PreTrainedModel, header: Mapping[str, str]) -> float | None:
    """How far a model's weights are from those the adapter with this header was trained on; None if it doesn't say."""
    if METADATA not in header:
        return None
    projections: Projections = json.loads(header[METADATA])
    own = projections_of(model)
    if own.keys() != projections.keys():
        return math.inf
    apart = [(own[name][0] - projection) / length for name, (projection, length) in projections.items()]
    return math.sqrt(sum(each * each for each in apart) / len(apart))


def _projection(weight: torch.Tensor) -> tuple[float, float]:
    values = weight.detach().to("cpu", torch.float64)
    projected = values
    for size in reversed(values.shape):
        projected = projected @ _direction(size)
    return float(projected) * math.sqrt(values.numel()), float(values.norm())


def _direction(size: int) -> torch.Tensor:
    direction: torch.Tensor = torch.cos(0.7 * torch.arange(size, dtype=torch.float64).square())
    return direction.div_(direction.norm())
