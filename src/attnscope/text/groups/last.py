"""The last token, whose attention decides what comes next."""

from __future__ import annotations

from attnscope.text.groups.group import QueryGroup

LAST = QueryGroup(
    name="last",
    meaning="The last token of the prompt.",
    words="the last token",
    rows=lambda tokens, segments: range(len(tokens))[-1:],
)
