"""The same string over and over: `insert: {repeat: "/"}`."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from attnscope.edits.sources.source import Source, SourceContext


class Repeat(Source):
    """A string, repeated; a unit is one repeat."""

    key: ClassVar[str] = "repeat"

    repeat: str = Field(min_length=1, description="The string to repeat.")

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        return self.repeat * units
