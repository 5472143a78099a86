"""Heads switched off: `ablate: {8: [0, 3], 9: [1]}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from attnscope.edits.attention.edit import AttentionEdit, Number, Numbers, each_once
from attnscope.text.rules import Tokenized


class Ablate(AttentionEdit):
    """Replaces the output of heads: what they add to the residual stream."""

    key: ClassVar[str] = "ablate"
    changes: ClassVar[Literal["weights", "outputs"]] = "outputs"
    control_words: ClassVar[str] = "as many random heads of the same layers"
    words: ClassVar[Mapping[str, str]] = {"heads": "ablate"}

    ablate: dict[Number, Numbers] = Field(min_length=1, description="Heads by layer, both from 0: {8: [0, 3]}.")
    how: Literal["zero", "mean", "values"] = Field(
        "zero",
        description="The replacement: zeros, each head's mean output over the prompt's tokens, or the given values.",
    )
    values: dict[Number, dict[Number, tuple[float, ...]]] = Field(
        default_factory=dict, description="With how: values, one vector of the head's size per layer and head."
    )

    @field_validator("ablate")
    @classmethod
    def _heads_once(cls, data: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        return {layer: each_once(heads) for layer, heads in sorted(data.items())}

    @model_validator(mode="after")
    def _whole(self) -> Ablate:
        if self.layers != "all":
            raise PydanticCustomError("one_of", "ablate already names the layers; remove layers")
        given = {(layer, head) for layer, heads in self.values.items() for head in heads}
        wanted = {(layer, head) for layer, heads in self.ablate.items() for head in heads}
        if self.how != "values" and given:
            raise PydanticCustomError("one_of", "values need how: values")
        if self.how == "values" and given != wanted:
            missing = sorted(wanted ^ given)[0]
            what = "give values for exactly the ablated heads; check layer {layer}, head {head}"
            raise PydanticCustomError("one_of", what, {"layer": missing[0], "head": missing[1]})
        return self

    def applies_to(self, layer: int) -> bool:
        return layer in self.ablate

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """The heads it replaces in a layer."""
        return self.ablate.get(layer, ())

    def named(self, every: Sequence[int]) -> dict[int, tuple[int, ...]]:
        return dict(self.ablate)

    def value_of(self, layer: int, head: int) -> tuple[float, ...] | None:
        """The given output of a head; None where it is zero or the mean."""
        return self.values.get(layer, {}).get(head)

    def control(self, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> Self | None:
        """As many other heads of each layer; None where a layer has too few, or with values, which belong to heads."""
        drawn: dict[int, tuple[int, ...]] = {}
        for layer, ablated in self.ablate.items():
            others = [head for head in range(heads[layer]) if head not in ablated]
            if len(others) < len(ablated) or self.how == "values":
                return None
            drawn[layer] = tuple(sorted(rng.sample(others, len(ablated))))
        return self.model_copy(update={"ablate": drawn})

    def weights(self, weights: Any, layer: int, heads: Any, q: Any, k: Any) -> Any:
        raise TypeError("ablate changes the outputs of heads, not their attention weights")
