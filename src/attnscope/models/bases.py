"""Whether a model has the very weights an adapter was trained on.

Shapes can't tell: a model of the same architecture with other weights takes the adapter and answers nonsense. So an
adapter can carry a mark of each weight of its base: the weight projected on fixed directions, and its length. In units
of that length an unrelated weight of the same shape is about 1 away, and the same weight rounded to bfloat16 0.001.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import torch
from transformers import PreTrainedModel

METADATA = "attnscope_base"  # in the header of the adapter's safetensors file
CLOSE = 0.003  # root mean square over all weights: rounding stays below, re-training and quantizing do not

Marks = dict[str, tuple[float, float]]
"""By the weight's name: its projection, and its length."""


def marks_of(model: PreTrainedModel) -> Marks:
    """Of every weight, the same in every dtype but for rounding."""
    return {name: _mark(weight) for name, weight in model.named_parameters()}


def as_metadata(marks: Marks) -> dict[str, str]:
    """Marks as they are written into the header of an adapter's file."""
    return {METADATA: json.dumps({name: [float(f"{number:.7g}") for number in mark] for name, mark in marks.items()})}


def distance(model: PreTrainedModel, header: Mapping[str, str]) -> float | None:
    """How far a model's weights are from those the adapter with this header was trained on; None if it doesn't say."""
    if METADATA not in header:
        return None
    marks: Marks = json.loads(header[METADATA])
    found = marks_of(model)
    if found.keys() != marks.keys():
        return math.inf
    apart = [(found[name][0] - projection) / length for name, (projection, length) in marks.items()]
    return math.sqrt(sum(each * each for each in apart) / len(apart))


def _mark(weight: torch.Tensor) -> tuple[float, float]:
    values = weight.detach().to("cpu", torch.float64)
    made = values
    for size in reversed(values.shape):
        made = made @ _direction(size)
    return float(made) * math.sqrt(values.numel()), float(values.norm())


def _direction(size: int) -> torch.Tensor:
    found: torch.Tensor = torch.cos(0.7 * torch.arange(size, dtype=torch.float64).square())
    return found.div_(found.norm())
