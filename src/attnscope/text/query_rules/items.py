"""One group per segment of a family: `items: passages`, or the turns of a chat."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from attnscope.text.query_rules.rule import Groups, Prompt, QueryRule
from attnscope.text.segments import Selector


class Items(QueryRule):
    """One group per segment that a selector names, in the order of the text: items of a list, turns of a chat."""

    key: ClassVar[str] = "items"
    word: ClassVar[str | None] = "item"

    items: str = Field(min_length=1, description="Segments, such as passages, or turn[role=user].")

    @property
    def title(self) -> str:
        return self.name or f"items of {self.items}"

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        return ("items",), self.items

    def groups(self, prompt: Prompt) -> Groups:
        segments = Selector.of(self.items).segments(prompt.spans)
        return {
            number: [row for row, mine in enumerate(prompt.segments) if mine == segment]
            for number, segment in enumerate(segments, start=1)
        }
