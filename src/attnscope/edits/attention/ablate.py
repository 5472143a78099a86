"""Heads switched off: `ablate: {8: [0, 3], 9: [1]}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from attnscope.edits.attention.edit import AttentionEdit
from attnscope.edits.attention.heads import HeadsByLayer, as_many_others
from attnscope.errors import AttnscopeError
from attnscope.text.rules import Tokenized


class Ablate(AttentionEdit):
    """Replaces the output of heads, which is what they add to the residual stream, by nothing or by its mean."""

    key: ClassVar[str] = "ablate"
    changes: ClassVar[Literal["weights", "outputs"]] = "outputs"
    control_words: ClassVar[str] = "as many random heads of the same layers"
    words: ClassVar[Mapping[str, str]] = {"heads": "ablate"}

    ablate: HeadsByLayer = Field(description="Heads by layer, both from 0: {8: [0, 3]}.")
    how: Literal["zero", "mean"] = Field(
        "zero", description="The replacement: zeros, or each head's mean output over the prompt's tokens."
    )

    @model_validator(mode="after")
    def _whole(self) -> Ablate:
        if self.layers != "all":
            raise PydanticCustomError("one_of", "ablate already names the layers; remove layers")
        return self

    def applies_to(self, layer: int) -> bool:
        return layer in self.ablate

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """The heads it switches off in a layer."""
        return self.ablate.get(layer, ())

    def named(self, every: Sequence[int]) -> dict[int, tuple[int, ...]]:
        return dict(self.ablate)

    def control(self, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> Self | None:
        """As many other heads of each layer; None where a layer has too few."""
        drawn = as_many_others(self.ablate, {layer: range(heads[layer]) for layer in self.ablate}, rng)
        return None if drawn is None else self.model_copy(update={"ablate": drawn})

    def outputs(self, outputs: Any, layer: int, q: Any) -> Any:
        changed, heads = outputs.clone(), list(self.heads_of(layer))
        changed[:, heads] = self._mean(outputs[:, heads], q) if self.how == "mean" else 0
        return changed

    def _mean(self, outputs: Any, q: Any) -> Any:
        if int(q[0]) > 0:
            raise AttnscopeError(
                "a head's mean output is not known where the first tokens come from a cache",
                where="ablate: how",
                allowed="mean in forwards of whole texts; zero with a cache",
                todo="choose another replacement, or run the model with use_cache=False",
            )
        return outputs.mean(0)
