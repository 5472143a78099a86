"""The tokens that a regular expression matches: `match: "[0-9]+"`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from attnscope.text.patterns import matched_characters, pattern_problem
from attnscope.text.query_rules.rule import Groups, Prompt, QueryRule


class Match(QueryRule):
    """The tokens with at least one character that a pattern matches, as one group."""

    key: ClassVar[str] = "match"

    match: str = Field(min_length=1, description="A regular expression.")
    of: str = Field("all", min_length=1, description="Only tokens of this segment or query group.")

    @field_validator("match")
    @classmethod
    def _readable(cls, pattern: str) -> str:
        problem = pattern_problem(pattern)
        if problem is not None:
            raise PydanticCustomError("one_of", "{why}", {"why": problem, "near": "a pattern such as [0-9]+"})
        return pattern

    @property
    def title(self) -> str:
        within = "" if self.of == "all" else f" in {self.of}"
        return self.name or f"matches of {self.match}{within}"

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        return ("of",), self.of

    def groups(self, prompt: Prompt) -> Groups:
        matched = matched_characters(self.match, prompt.text, "a query group", f"'match: {self.match}'")
        rows = [
            row for row, token in prompt.about(self.of) if not token.special and matched[token.start : token.end].any()
        ]
        return {1: rows}
