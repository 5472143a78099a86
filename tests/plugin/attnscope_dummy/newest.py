"""A query group: the last three tokens."""

from __future__ import annotations

from attnscope.text.groups import QueryGroup

NEWEST = QueryGroup(
    name="newest",
    meaning="The last three tokens of the prompt.",
    words="the last three tokens",
    rows=lambda tokens, segments: range(len(tokens))[-3:],
)
