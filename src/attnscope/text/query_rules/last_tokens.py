"""The last few tokens: `last: 8`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from attnscope.spec import Whole
from attnscope.text.query_rules.rule import Groups, Prompt, QueryRule


class LastTokens(QueryRule):
    """The last tokens of the prompt, or of a segment or group, as one group."""

    key: ClassVar[str] = "last"

    last: Whole = Field(ge=1, le=2**20, description="How many tokens; fewer if there are not so many.")
    of: str = Field("all", min_length=1, description="The segment or query group they are the last of.")

    @property
    def title(self) -> str:
        within = "" if self.of == "all" else f" of {self.of}"
        return self.name or f"last {self.last} tokens{within}"

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        return ("of",), self.of

    def groups(self, prompt: Prompt) -> Groups:
        return {1: prompt.rows(self.of)[-self.last :]}
