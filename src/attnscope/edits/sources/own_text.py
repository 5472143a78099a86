"""Your own text: `insert: {text: "..."}`."""

from __future__ import annotations

import re
from itertools import cycle, islice
from random import Random
from typing import ClassVar

from pydantic import Field

from attnscope.edits.sources.source import Source, SourceContext


class OwnText(Source):
    """Your own text; a unit is a word with the spaces before it. If more is needed, the text is repeated."""

    key: ClassVar[str] = "text"

    text: str = Field(min_length=1, description="The text to insert.")

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        return "".join(islice(cycle(words(self.text)), units))

    def natural(self, context: SourceContext) -> int | None:
        return len(words(self.text))


def words(text: str) -> list[str]:
    """Words with the spaces before them (the last one with those after it too): joined, they are the text."""
    return re.findall(r"\s*\S+(?:\s+\Z)?", text) or [text]
