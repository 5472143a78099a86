"""Mistakes of measures and of what else a package adds, reported as its own and not as the model's."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from attnscope.errors import AttnscopeError
from attnscope.measures import MEASURES, Measure
from attnscope.models.memory import is_out_of_memory
from attnscope.registry import Registry


def blamed(measure: Measure, part: str) -> AbstractContextManager[None]:
    """Inside, a part of the measure's own code runs; that memory runs out is not its fault."""
    return MEASURES.blamed(measure.name, part, excused=is_out_of_memory)


def checked(measure: Measure, part: str, values: Any, shape: torch.Size) -> Tensor:
    """What a part of a measure returned, if it is a tensor of this shape: none is broadcast."""
    return shaped(MEASURES, measure.name, part, values, shape)


def shaped(family: Registry[Any], name: str, part: str, values: Any, shape: torch.Size) -> Tensor:
    """What a part of a family's member returned, if it is a tensor of this shape."""
    if isinstance(values, Tensor) and values.shape == shape:
        return values
    what = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
    raise family.mistake(name, part, f"returns {what}", f"a tensor of shape {tuple(shape)}")


def not_finite(measure: Measure, where: str) -> AttnscopeError:
    """For a measure that gives such numbers of attention weights that are finite."""
    return AttnscopeError(
        f"the measure '{measure.name}' gives numbers that are not finite",
        where=where,
        allowed="finite values for every row of attention, also where all of it is on one key",
        todo="fix the measure, or leave it out",
    )
