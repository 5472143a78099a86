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
    of_field: ClassVar[bool] = True

    shuffle: str = Field(description="The segment to copy.")
    by: Literal["words", "characters"] = Field("words", description="What is shuffled: words or characters.")

    @property
    def segment(self) -> str | None:
        return self.shuffle

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        return in_random_order(self._text(context), self.by, units, rng)

    def natural(self, context: SourceContext) -> int | None:
        return len(parts_of(self._text(context), self.by))

    def _text(self, context: SourceContext) -> str:
        return context.fields.get(self.shuffle, "")


def in_random_order(text: str, by: str, units: int, rng: Random) -> str:
    """So many words or characters of a text in random order, again and again if it has fewer."""
    parts = parts_of(text, by)
    rng.shuffle(parts)
    return "".join(islice(cycle(parts), units)).removeprefix(" " if by == "words" else "")


def parts_of(text: str, by: str) -> list[str]:
    """A text's words, each with a space before it, or its characters."""
    if by == "characters":
        return list(text)
    return [f" {word.strip()}" for word in words(text)] if text else []
