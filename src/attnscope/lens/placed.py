"""What a caller names in words, as positions in a prompt: attention edits and query groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnscope.attention.groups import Rows
from attnscope.attention.seam import Edits, NoEdits, PlacedEdits, placed_in
from attnscope.edits.attention import AttentionEdit
from attnscope.text.groups import GROUPS, WITHOUT_TOKENS, rows_of
from attnscope.text.rules import Tokenized
from attnscope.text.segments import segments_of
from attnscope.text.tokens import Token

Prompts = Sequence[tuple[str, Sequence[Token]]]


def placed_edits(prompts: Prompts, edits: Sequence[AttentionEdit]) -> Edits:
    """The edits with positions in each prompt."""
    if not edits:
        return NoEdits()
    placed = [placed_in(Tokenized(text, tokens), edits) for text, tokens in prompts]
    return PlacedEdits(placed, [len(tokens) for _, tokens in prompts])


def with_named_rows(
    prompts: Prompts, queries: Sequence[str], rows: Sequence[Mapping[str, Rows]] | None
) -> Sequence[Mapping[str, Rows]] | None:
    """The rows given, and those of query groups that a package adds; `last` and `all` need none."""
    given: Sequence[Mapping[str, Rows]] = [{} for _ in prompts] if rows is None else rows
    named = [name for name in queries if name in GROUPS.members and name not in WITHOUT_TOKENS]
    wanted = [[name for name in named if name not in own] for own in given]
    if not any(wanted):
        return rows
    return [
        {**own, **{name: rows_of(name, tokens, segments_of(tokens, ())) for name in names}}
        for (_, tokens), own, names in zip(prompts, given, wanted, strict=True)
    ]
