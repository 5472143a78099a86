"""A segment in parts of equal length: `bins: {of: answer, count: 16}`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from attnscope.spec import Spec, Whole
from attnscope.text.query_rules.rule import MOST, Groups, Prompt, QueryRule


class BinsOf(Spec):
    """What is divided, and into how many parts."""

    of: str = Field(min_length=1, description="A segment or query group.")
    count: Whole = Field(ge=1, le=MOST, description="How many bins.")


class Bins(QueryRule):
    """The tokens of a segment or group in bins of equal length, from its start to its end.

    A prompt with fewer tokens than bins has some of them, from the first on, as far apart as its tokens.
    """

    key: ClassVar[str] = "bins"
    word: ClassVar[str | None] = "bin"

    bins: BinsOf = Field(description="What is divided, and into how many bins.")

    @property
    def title(self) -> str:
        return self.name or f"bins of {self.bins.of}"

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        return ("bins", "of"), self.bins.of

    def groups(self, prompt: Prompt) -> Groups:
        rows = prompt.rows(self.bins.of)
        groups: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault(place * self.bins.count // len(rows) + 1, []).append(row)
        return groups
