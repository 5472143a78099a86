"""Every token."""

from __future__ import annotations

from attnscope.text.groups.group import QueryGroup

ALL = QueryGroup(
    name="all",
    meaning="Every token of the prompt.",
    words="every token",
    rows=lambda tokens, segments: range(len(tokens)),
)
