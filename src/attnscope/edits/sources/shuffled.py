"""The replaced text itself in random order: `with: {shuffled: words}`."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.edits.sources.shuffle import in_random_order, parts_of
from attnscope.edits.sources.source import Source, SourceContext


class Shuffled(Source):
    """The words or characters of the text that is replaced, in random order; a unit is one of them."""

    key: ClassVar[str] = "shuffled"
    random: ClassVar[bool] = True

    shuffled: Literal["words", "characters"] = Field(description="What is shuffled: words or characters.")

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        return in_random_order(context.replaced, self.shuffled, units, rng)

    def natural(self, context: SourceContext) -> int | None:
        return len(parts_of(context.replaced, self.shuffled))
