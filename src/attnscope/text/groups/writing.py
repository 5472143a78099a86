"""The tokens after which the answer's tokens are written."""

from __future__ import annotations

from collections.abc import Sequence

from attnscope.text.groups.group import QueryGroup
from attnscope.text.segments import ANSWER
from attnscope.text.tokens import Token


def _rows(tokens: Sequence[Token], segments: Sequence[str]) -> list[int]:
    return [place - 1 for place, segment in enumerate(segments) if segment == ANSWER and place]


WRITING = QueryGroup(
    name="writing",
    meaning="The tokens from which the answer's tokens are predicted: each stands just before the token it writes.",
    words="the tokens that write the answer",
    rows=_rows,
    segment=ANSWER,
    ahead=1,
)
