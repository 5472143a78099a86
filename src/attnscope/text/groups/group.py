"""What a query group declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnscope.text.tokens import Token

NAME = re.compile(r"[a-z][a-z0-9_]*")

Rows = Callable[[Sequence[Token], Sequence[str]], Sequence[int]]
"""(tokens, the segment of each token) -> positions of the group's queries."""


@dataclass(frozen=True, kw_only=True)
class QueryGroup:
    """Queries whose attention is averaged with equal weights."""

    name: str
    meaning: str
    """A sentence for docs."""
    words: str
    """For captions, as in "attention from the last token"."""
    rows: Rows
    segment: str | None = None
    """The segment it needs, if not all prompts have one."""
    ahead: int = 0
    """How many tokens after a row the token comes that the row is about: 1 where rows are those that write a token."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"query group '{self.name}': a name is lower-case letters, digits and _")
        if not self.meaning.strip() or not self.words.strip():
            raise ValueError(f"query group '{self.name}': it has no meaning or no words")
