"""Whether a model has the very weights an adapter was trained on.

Shapes can't tell: a model of the same architecture with other weights takes the adapter and answers nonsense. So an
adapter can carry a mark of each weight it adapts: the weight projected on two fixed directions, in units in which an
unrelated weight of the same shape gives about 1 and rounding to bfloat16 about 0.001.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

import torch
from transformers import PreTrainedModel

METADATA = "attnscope_base"  # in the header of the adapter's safetensors file
CLOSE = 0.003  # root mean square over an adapter's weights: rounding stays below, re-training and quantizing do not


def marks_of(model: PreTrainedModel, modules: Iterable[str]) -> dict[str, float]:
    """A number for each of these modules' weights, the same in every dtype but for rounding."""
    return {name: _mark(model.get_parameter(f"{name}.weight")) for name in modules}


def as_metadata(marks: Mapping[str, float]) -> dict[str, str]:
    """Marks as they are written into the header of an adapter's file."""
    return {METADATA: json.dumps({name: round(mark, 6) for name, mark in marks.items()})}


def distance(model: PreTrainedModel, header: Mapping[str, str]) -> float | None:
    """How far a model's weights are from those the adapter with this header was trained on; None if it doesn't say."""
    if METADATA not in header:
        return None
    marks: dict[str, float] = json.loads(header[METADATA])
    found = marks_of(model, marks)
    return math.sqrt(sum((found[name] - mark) ** 2 for name, mark in marks.items()) / len(marks))


def _mark(weight: torch.Tensor) -> float:
    values = weight.detach().to("cpu", torch.float64)
    rows, columns = (torch.cos(0.7 * torch.arange(size, dtype=torch.float64).square()) for size in values.shape)
    length = values.norm() * rows.norm() * columns.norm()
    return float(rows @ values @ columns / length) * math.sqrt(values.numel())
