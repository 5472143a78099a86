"""Parts of a prompt that edits take out, put in and exchange: whole segments, with the separators of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attnscope.edits.prompt.edit import EditContext, Lines
from attnscope.errors import AttnscopeError, near
from attnscope.text.segments import INSERTED, TEMPLATE, Piece, Selector


def pieces_of(lines: Lines) -> list[Piece]:
    return [piece for _, pieces in lines for piece in pieces]


def chosen(lines: Lines, selector: str, context: EditContext) -> list[str]:
    """The segments that a selector means in a prompt; refused if it has none of them."""
    pieces = [piece for piece in pieces_of(lines) if piece.segment != TEMPLATE]
    names = Selector.of(selector).segments(pieces)
    if not names:
        known = list(dict.fromkeys(_described(piece) for piece in pieces if piece.segment != INSERTED))
        raise AttnscopeError(
            f"the prompt has no '{selector}'",
            where=context.where,
            allowed=near(selector, known),
            todo="name a segment that every prompt has, or remove the prompts that lack it",
        )
    return names


def _described(piece: Piece) -> str:
    return piece.segment if piece.role is None else f"{piece.segment}[role={piece.role}]"


def mapped(lines: Lines, change: Callable[[Piece], Iterable[Piece]]) -> Lines:
    """The prompt with each piece replaced by what `change` makes of it."""
    return [(role, [new for piece in pieces for new in change(piece)]) for role, pieces in lines]


def without(lines: Lines, names: Sequence[str]) -> Lines:
    """The prompt without these segments: separators of lists and messages that would be empty go with them."""
    kept = []
    for role, pieces in lines:
        left = [piece for piece in pieces if piece.segment not in names]
        if len(left) == len(pieces):
            kept.append((role, pieces))
            continue
        tidy = _separated(left)
        if any(piece.text.strip() for piece in tidy) or role is None:
            kept.append((role, tidy))
    return kept


def _separated(pieces: Sequence[Piece]) -> list[Piece]:
    """Without separators that no longer stand between two items of their list."""
    kept: list[Piece] = []
    for place, piece in enumerate(pieces):
        if piece.joins is not None:
            follows = place + 1 < len(pieces) and _belongs(pieces[place + 1], piece.joins)
            if not (kept and _belongs(kept[-1], piece.joins) and follows):
                continue
        kept.append(piece)
    return kept


def _belongs(piece: Piece, family: str) -> bool:
    return piece.joins is None and Selector(family).covers(piece.segment)


def refuse_if_empty(lines: Lines, context: EditContext) -> Lines:
    """The prompt, if it still has some text."""
    if not any(piece.text.strip() for piece in pieces_of(lines)):
        raise AttnscopeError(
            "the edits leave nothing of the prompt",
            where=context.where,
            allowed="edits that leave some text",
            todo="delete less, or insert something",
        )
    return lines
