"""One group per token: `each: answer`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from attnscope.text.query_rules.rule import Groups, Prompt, QueryRule


class Each(QueryRule):
    """One group per token of a segment or group."""

    key: ClassVar[str] = "each"
    word: ClassVar[str | None] = "token"

    each: str = Field(min_length=1, description="A segment or query group, such as answer or writing.")

    @property
    def title(self) -> str:
        return self.name or f"tokens of {self.each}"

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        return ("each",), self.each

    def groups(self, prompt: Prompt) -> Groups:
        return {number: [row] for number, row in enumerate(prompt.rows(self.each), start=1)}
