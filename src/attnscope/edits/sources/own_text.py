"""A text of the user's: `insert: {text: "..."}`."""

from __future__ import annotations

import re
from itertools import cycle, islice
from random import Random
from typing import ClassVar

from pydantic import Field

from attnscope.edits.sources.source import Source, SourceContext


class OwnText(Source):
    """A given text; a unit is a word with the spaces before it. If more is needed, it starts again."""

    key: ClassVar[str] = "text"

    text: str = Field(min_length=1, description="The text to insert.")

    def draft(self, units: int, chance: Random, ground: SourceContext) -> str:
        return "".join(islice(cycle(words(self.text)), units))

    def natural(self, ground: SourceContext) -> int | None:
        return len(words(self.text))


def words(text: str) -> list[str]:
    """Words with the spaces before them (the last one with those after it too): joined, they are the text."""
    found = re.findall(r"\s*\S+(?:\s+\Z)?", text)
    return found or [text]
