"""The replaced text itself in random order: `with: {shuffled: words}`."""

from __future__ import annotations

from itertools import cycle, islice
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.edits.sources.own_text import words
from attnscope.edits.sources.source import Source, SourceContext


class Shuffled(Source):
    """The words or characters of the text that is replaced, in random order; a unit is one of them."""

    key: ClassVar[str] = "shuffled"
    random: ClassVar[bool] = True

    shuffled: Literal["words", "characters"] = Field(description="What is shuffled: words or characters.")

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        parts = self._parts(context)
        rng.shuffle(parts)
        return "".join(islice(cycle(parts), units)).removeprefix(" " if self.shuffled == "words" else "")

    def natural(self, context: SourceContext) -> int | None:
        return len(self._parts(context))

    def _parts(self, context: SourceContext) -> list[str]:
        if self.shuffled == "characters":
            return list(context.replaced)
        return [f" {word.strip()}" for word in words(context.replaced)] if context.replaced.strip() else []
