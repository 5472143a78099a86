"""What a caller names in words, as positions in a prompt: attention edits and query groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from attnscope.attention.groups import Rows
from attnscope.attention.seam import Edits, NoEdits, PlacedEdits, placed_in
from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
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


def controls_of(
    edits: Sequence[AttentionEdit], prompt: Tokenized, heads: Mapping[int, int], draws: int, seed: int
) -> tuple[list[list[AttentionEdit]], str]:
    """As much changed at random, so many times, and what is drawn, in words; or none, and why.

    edits: with positions. heads: how many each layer has.
    """
    without = [edit.key for edit in edits if not edit.control_words]
    if not edits or without or not draws:
        return [], f"'{without[0]}' has none" if without else "none was asked for"
    drawn = []
    for number in range(draws):
        rng = Random(f"{seed}/{number}")  # noqa: S311
        controls = [_control(edit, prompt, heads, rng) for edit in edits]
        alike = [each for each in controls if each is not None]
        if len(alike) < len(edits):
            return [], f"there is too little else for {edits[controls.index(None)].control_words}"
        drawn.append(alike)
    return drawn, " and ".join(dict.fromkeys(edit.control_words for edit in edits))


def _control(edit: AttentionEdit, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> AttentionEdit | None:
    with ATTENTION_EDITS.blamed(edit.key, "control"):
        drawn: object = edit.control(prompt, heads, rng)
    if drawn is not None and not isinstance(drawn, AttentionEdit):
        raise ATTENTION_EDITS.mistake(edit.key, "control", f"returns a {type(drawn).__name__}", "an attention edit")
    return drawn


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
