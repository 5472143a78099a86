"""Layers and heads as a study file names them: by number, or by relative depth so that one study fits many models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from attnscope.spec import Real, Spec, Whole

Depth = Annotated[Real, Field(ge=0, le=1)]


class DepthsSpec(Spec):
    """Layers by relative depth, so that one study fits models of different sizes."""

    depths: list[Depth] = Field(
        min_length=1, description="0 is the first layer, 1 the last; 16/28 of 28 layers is layer 16."
    )


class BandSpec(Spec):
    """All layers from one relative depth to another, so that one study fits models of different sizes."""

    depths: tuple[Depth, Depth] = Field(
        description="From the first depth up to the second; 0 is the first layer, 1 is past the last. [0, 0.5] and "
        "[0.5, 1] have every layer once."
    )

    @model_validator(mode="after")
    def _in_order(self) -> BandSpec:
        if self.depths[0] > self.depths[1]:
            context = {"near": f"[{self.depths[1]}, {self.depths[0]}]"}
            raise PydanticCustomError("one_of", "the first depth is beyond the second", context)
        return self

    def layers(self, count: int) -> list[int]:
        """The layers of a model that has so many; at least one."""
        first, end = (layer_at(depth, count) for depth in self.depths)
        return list(range(first, count if self.depths[1] == 1 else max(end, first + 1)))


def layer_at(depth: float, layers: int) -> int:
    """The layer at a relative depth of a model with this many layers."""
    return min(layers - 1, int(depth * layers + 1e-9))


Numbers = Annotated[list[Annotated[Whole, Field(ge=0)]], Field(min_length=1)]


def _choice(what: str, allowed: str, *types: type) -> BeforeValidator:
    """Refuse what is no choice of layers or heads at all, naming every way to write one."""

    def check(data: Any) -> Any:
        if data == "all" or isinstance(data, types):
            return data
        context = {"given": "nothing" if data is None else f"'{data}'", "near": allowed}
        raise PydanticCustomError("one_of", f"{{given}} is not a choice of {what} here", context)

    return BeforeValidator(check)


Layers = Annotated[
    Literal["all"] | DepthsSpec | Numbers,
    _choice("layers", "all, a list of numbers such as [0, 16], or {depths: [0, 0.5, 1]}", list, dict, DepthsSpec),
]
Band = Annotated[
    Literal["all"] | BandSpec | Numbers,
    _choice("layers", "all, a list of numbers such as [8, 9], or {depths: [0.4, 0.7]}", list, dict, BandSpec),
    BeforeValidator(lambda data: BandSpec.model_validate(data) if isinstance(data, dict) else data),
]
"""Layers in which attention is changed."""
Heads = Annotated[Literal["all"] | Numbers, _choice("heads", "all, or a list of numbers such as [0, 3]", list)]
