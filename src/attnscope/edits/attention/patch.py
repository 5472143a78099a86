"""Heads that give what they gave elsewhere: `Patch(patch={8: [0]}, values=lens.head_outputs(text, {8: [0]}))`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from attnscope.edits.attention.edit import AttentionEdit, Number
from attnscope.edits.attention.head_outputs import HeadOutputs, checked_outputs
from attnscope.edits.attention.heads import HeadsByLayer, as_many_others
from attnscope.errors import AttnscopeError
from attnscope.text.rules import Tokenized

GivenOutputs = SkipJsonSchema[Annotated[HeadOutputs, PlainValidator(checked_outputs)]]


class Patch(AttentionEdit):
    """Replaces the output of heads by given values, token by token: what they give in another text, or a mean."""

    key: ClassVar[str] = "patch"
    changes: ClassVar[Literal["weights", "outputs"]] = "outputs"
    control_words: ClassVar[str] = "as many random heads of the same layers"
    words: ClassVar[Mapping[str, str]] = {"heads": "patch"}

    patch: HeadsByLayer = Field(description="Heads by layer, both from 0: {8: [0, 3]}.")
    values: GivenOutputs = Field(
        exclude=True,
        repr=False,
        description="By layer and head: an array (tokens, width), as `Lens.head_outputs` gives it, or one vector "
        "(width,) for every token. Controls are drawn from other heads of the same layers, if they have values too.",
    )
    align: tuple[Number | None, ...] | None = Field(
        None,
        description="For each token of the prompt, which token of the values it gets, or None if it keeps its own "
        "output, as tokens beyond the end do. By default it goes token by token, and prompt and values need as many.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Patch:
        if self.layers != "all":
            raise PydanticCustomError("one_of", "patch already names the layers; remove layers")
        for layer, heads in self.patch.items():
            for head in heads:
                if head not in self.values.get(layer, {}):
                    where = {"layer": layer, "head": head}
                    raise PydanticCustomError("one_of", "there are no values for layer {layer}, head {head}", where)
        if len(self._tokens) > 1:
            raise PydanticCustomError("one_of", "the values are of texts with different numbers of tokens")
        self._refuse_alignment()
        return self

    def _refuse_alignment(self) -> None:
        matched = [place for place in self.align or () if place is not None]
        if self.align is not None and not matched:
            raise PydanticCustomError("one_of", "align gives no token a counterpart")
        for tokens in self._tokens:
            if max(matched, default=0) >= tokens:
                context = {"place": max(matched), "tokens": tokens}
                raise PydanticCustomError("one_of", "align names token {place}, and the values have {tokens}", context)

    @property
    def _tokens(self) -> set[int]:
        """Of how many tokens the values are; none if they are the same for every token."""
        return {len(values) for heads in self.values.values() for values in heads.values() if values.ndim > 1}

    def __eq__(self, other: object) -> bool:
        return self is other  # arrays have no truth value

    __hash__ = object.__hash__

    def applies_to(self, layer: int) -> bool:
        return layer in self.patch

    def named(self, every: Sequence[int]) -> dict[int, tuple[int, ...]]:
        return dict(self.patch)

    def placed(self, prompt: Tokenized) -> Self:
        tokens = len(prompt.tokens)
        if self.align is not None and len(self.align) > tokens:
            raise _unlike(f"the alignment is of {len(self.align)} tokens", tokens)
        if self.align is None and self._tokens - {tokens}:
            raise _unlike(f"the values are of {min(self._tokens)} tokens", tokens)
        return self

    def control(self, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> Self | None:
        """As many other heads of each layer, with their own values; None where too few have any."""
        among = {layer: [head for head in sorted(self.values[layer]) if head < heads[layer]] for layer in self.patch}
        drawn = as_many_others(self.patch, among, rng)
        return None if drawn is None else self.model_copy(update={"patch": drawn})

    def outputs(self, outputs: Any, layer: int, q: Any) -> Any:
        changed = outputs.clone()
        matches = [(row, place) for row, place in enumerate(map(self._match, q.tolist())) if place is not None]
        for head in self.patch[layer] if matches else ():
            values = outputs.new_tensor(self.values[layer][head])
            if values.shape[-1] != outputs.shape[-1]:
                raise AttnscopeError(
                    f"the output of layer {layer} head {head} has {outputs.shape[-1]} values, "
                    f"{values.shape[-1]} are given",
                    where="patch: values",
                    allowed=f"{outputs.shape[-1]} numbers per token",
                    todo="give the outputs of this model's heads",
                )
            rows, places = (list(each) for each in zip(*matches, strict=True))
            changed[rows, head] = values[places] if values.dim() > 1 else values
        return changed

    def _match(self, position: int) -> int | None:
        """The token of the values that a position gets."""
        if self.align is None:
            return position
        return self.align[position] if position < len(self.align) else None


def _unlike(what: str, tokens: int) -> AttnscopeError:
    return AttnscopeError(
        f"{what}, the prompt has {tokens}",
        where="patch",
        allowed="values of as many tokens, or an alignment",
        todo="say in align which token of the values each token of the prompt gets",
    )
