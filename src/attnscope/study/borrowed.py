"""Heads that give what they give elsewhere in the study: their mean over its prompts, or what they give in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from attnscope.edits.attention.edit import AttentionEdit, Number
from attnscope.edits.attention.heads import HeadsByLayer, as_many_others
from attnscope.text.rules import Tokenized

MEAN, RESAMPLE, PATCH = "mean", "resample", "patch"
How = Literal["mean", "resample", "patch"]


class Borrowed(AttentionEdit):
    """Replaces the output of heads by what they give elsewhere in the study.

    It becomes a `Patch` once a model has computed what heads give there, so it is data until then.
    """

    key: ClassVar[str] = "borrowed"
    changes: ClassVar[Literal["weights", "outputs"]] = "outputs"
    control_words: ClassVar[str] = "as many random heads of the same layers"

    borrowed: HeadsByLayer = Field(description="Heads by layer, both from 0.")
    how: How = Field(description="mean: over the study's prompts; resample: of another prompt; patch: of a condition.")
    condition: str | None = Field(None, description="With patch: the condition of the same prompt.")
    source: str | None = Field(None, description="Once placed: the name of the texts that it borrows from.")
    align: tuple[Number | None, ...] | None = Field(
        None, description="Once placed: for each token the one of the source's that it gets, or None; a mean has none."
    )

    def applies_to(self, layer: int) -> bool:
        return layer in self.borrowed

    def named(self, every: Sequence[int]) -> dict[int, tuple[int, ...]]:
        return dict(self.borrowed)

    def control(self, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> Self | None:
        """As many other heads of each layer, which borrow from the same texts."""
        drawn = as_many_others(self.borrowed, {layer: range(heads[layer]) for layer in self.borrowed}, rng)
        return None if drawn is None else self.model_copy(update={"borrowed": drawn})

    def outputs(self, outputs: Any, layer: int, q: Any) -> Any:
        raise TypeError("what heads give elsewhere has to be computed first")
