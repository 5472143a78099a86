"""A query rule: one group per sentence of a segment."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from attnscope.text.query_rules import Groups, Prompt, QueryRule


class Sentences(QueryRule):
    """One group per sentence of a segment or group; a sentence ends with a full stop."""

    key: ClassVar[str] = "sentences"
    word: ClassVar[str | None] = "sentence"

    sentences: str = Field(min_length=1, description="A segment or query group.")

    @property
    def title(self) -> str:
        return self.name or f"sentences of {self.sentences}"

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        return ("sentences",), self.sentences

    def groups(self, prompt: Prompt) -> Groups:
        groups: dict[int, list[int]] = {}
        number = 1
        for row, token in prompt.about(self.sentences):
            groups.setdefault(number, []).append(row)
            number += token.text.rstrip().endswith(".")
        return groups
