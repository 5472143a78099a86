"""The answer's tokens."""

from __future__ import annotations

from attnscope.text.groups.group import QueryGroup
from attnscope.text.segments import ANSWER as SEGMENT

ANSWER = QueryGroup(
    name="answer",
    meaning="The tokens of the answer that follows the prompt.",
    words="the tokens of the answer",
    rows=lambda tokens, segments: [place for place, segment in enumerate(segments) if segment == SEGMENT],
    segment=SEGMENT,
)
