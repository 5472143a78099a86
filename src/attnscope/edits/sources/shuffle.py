"""A shuffled copy of one of the prompt's own segments: `insert: {shuffle: question}`."""

from __future__ import annotations

from itertools import cycle, islice
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.edits.sources.own_text import words
from attnscope.edits.sources.source import Source, SourceContext


class Shuffle(Source):
    """A segment's words or characters in random order; a unit is one of them."""

    key: ClassVar[str] = "shuffle"
    random: ClassVar[bool] = True

    shuffle: str = Field(description="The segment to copy.")
    by: Literal["words", "characters"] = Field("words", description="What is shuffled: words or characters.")

    @property
    def segment(self) -> str | None:
        return self.shuffle

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        parts = self._parts(context)
        rng.shuffle(parts)
        return "".join(islice(cycle(parts), units)).removeprefix(" " if self.by == "words" else "")

    def natural(self, context: SourceContext) -> int | None:
        return len(self._parts(context))

    def _parts(self, context: SourceContext) -> list[str]:
        text = context.fields.get(self.shuffle, "")
        if self.by == "characters":
            return list(text)
        return [f" {word.strip()}" for word in words(text)] if text else []
