"""Words of the model's own vocabulary at random: `insert: {random_tokens: true}`."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.edits.sources.source import Source, SourceContext
from attnscope.errors import AttnscopeError


class RandomTokens(Source):
    """Tokens drawn evenly from the vocabulary's plain words; a unit is one of them."""

    key: ClassVar[str] = "random_tokens"
    random: ClassVar[bool] = True

    random_tokens: Literal[True] = Field(description="Draw tokens from the model's vocabulary.")

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        if not context.vocabulary:
            raise AttnscopeError(
                "the model's vocabulary has no plain words to draw from",
                where="insert: random_tokens",
                allowed="tokenizers with words of letters",
                todo="insert something else",
            )
        return "".join(rng.choice(context.vocabulary) for _ in range(units)).removeprefix(" ")
