"""A source of text to insert: `insert: {countdown: 9}`."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from attnscope.edits.sources import Source, SourceContext


class Countdown(Source):
    """Counts down to zero, over and over; a unit is one number."""

    key: ClassVar[str] = "countdown"

    countdown: int = Field(ge=1, description="Where to start.")

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        return " ".join(str(self.countdown - unit % (self.countdown + 1)) for unit in range(units))
