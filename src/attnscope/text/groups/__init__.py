"""Query groups: the queries whose attention is averaged. One per module of this package or of a plugin; segments too.

A plugin offers its own under the entry points `attnscope.query_groups`:

    [project.entry-points."attnscope.query_groups"]
    first = "my_package.first:FIRST"
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import index

from attnscope.errors import AttnscopeError, near
from attnscope.registry import Registry
from attnscope.text.groups.group import QueryGroup
from attnscope.text.segments import Selector, Span
from attnscope.text.tokens import Token

GROUPS: Registry[QueryGroup] = Registry(
    "query group",
    package="attnscope.text.groups",
    group="attnscope.query_groups",
    is_member=lambda thing: isinstance(thing, QueryGroup),
)

Rows = tuple[int, ...]
"""The positions of a group's queries, in order."""

WITHOUT_TOKENS = ("last", "all")
"""Groups that depend only on the number of tokens; `attnscope.attention` knows them by name."""


def rows_of(name: str, tokens: Sequence[Token], segments: Sequence[str], spans: Sequence[Span] = ()) -> Rows:
    """The positions of a group's queries, in order; name: a group's, or a selector of segments.

    segments: the segment of each token; spans: of the text. Empty if the prompt has no such query.
    """
    group = GROUPS.members.get(name)
    if group is None:
        known = spans or [Span(segment, 0, 0) for segment in dict.fromkeys(segments)]
        chosen = set(Selector.of(name).segments(known))
        return tuple(place for place, segment in enumerate(segments) if segment in chosen)
    with GROUPS.blamed(name, "rows"):
        rows = [index(row) for row in group.rows(tokens, segments)]
    if len(set(rows)) < len(rows) or not all(0 <= row < len(tokens) for row in rows):
        what = f"gives positions that are not in the prompt, or repeats one: {rows[:8]}"
        raise GROUPS.mistake(name, "rows", what, f"whole numbers from 0 to {len(tokens) - 1}, each once")
    return tuple(sorted(rows))


def known_groups(segments: Collection[str]) -> list[str]:
    """The names of all groups of prompts with these segments, including the segments themselves."""
    named = [name for name, group in GROUPS.members.items() if group.segment is None or group.segment in segments]
    return list(dict.fromkeys([*named, *segments]))


def find_group(name: str, segments: Collection[str], where: str) -> None:
    """Refuse a name that is neither a group's nor a segment's."""
    known = known_groups(segments)
    if name not in known:
        raise AttnscopeError(
            f"unknown query group '{name}'", where=where, allowed=near(name, known), todo="use one of these"
        )


def group_words(name: str) -> str:
    """A query group in a sentence, as in "attention from the last token"."""
    group = GROUPS.members.get(name)
    if group is not None:
        return group.words
    if " " in name:  # a query rule's groups are named in words
        return f"the {name}" if name.startswith("last ") else name
    return f"the tokens of {name}"


__all__ = ["GROUPS", "WITHOUT_TOKENS", "QueryGroup", "Rows", "find_group", "group_words", "known_groups", "rows_of"]
