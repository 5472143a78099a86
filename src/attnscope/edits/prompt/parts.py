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
    """The prompt without these segments; see `split`."""
    return split(lines, names)[0]


def split(lines: Lines, names: Sequence[str]) -> tuple[Lines, list[Piece]]:
    """The prompt without these segments, and their pieces in order.

    Each item of a list takes one of its separators along, the one after it if it can. So items that are taken out
    together still have separators between them. Messages that would be empty go too.
    """
    kept, taken = [], []
    for role, pieces in lines:
        places = [place for place, piece in enumerate(pieces) if piece.segment in names]
        gone: set[int] = set()
        for place in places:
            separator = _separator_of(pieces, place, gone)
            gone |= {place} if separator is None else {place, separator}
        taken += _joined([pieces[place] for place in places], [pieces[place] for place in sorted(gone - {*places})])
        left = [piece for place, piece in enumerate(pieces) if place not in gone]
        if not gone or role is None or any(piece.text.strip() for piece in left):
            kept.append((role, left))
    return kept, taken


def _separator_of(pieces: Sequence[Piece], place: int, gone: set[int]) -> int | None:
    """Where the separator stands that an item takes along: the next one up to another item, or else the last."""
    item = pieces[place]
    for way in (range(place + 1, len(pieces)), range(place - 1, -1, -1)):
        for other in way:
            joins = pieces[other].joins
            if other in gone:
                continue
            if joins is not None and Selector(joins).covers(item.segment):
                return other
            if joins is None and _siblings(pieces[other], item):
                break
    return None


def _siblings(one: Piece, two: Piece) -> bool:
    """Whether two pieces are items of one list."""
    family, dot, _ = one.segment.rpartition(".")
    return bool(dot) and two.segment.startswith(f"{family}.")


def _joined(items: Sequence[Piece], separators: Sequence[Piece]) -> list[Piece]:
    """Pieces in order, with separators between those that are items of one list."""
    joined: list[Piece] = []
    left = list(separators)
    for item in items:
        if joined and _siblings(joined[-1], item) and left:
            joined.append(left.pop(0))
        joined.append(item)
    return joined


def refuse_if_scattered(lines: Lines, names: Sequence[str], selector: str, context: EditContext) -> None:
    """Refuse segments that are in several messages: put in one place, they would change their speaker."""
    messages = [pieces for _, pieces in lines if any(piece.segment in names for piece in pieces)]
    if len(messages) > 1:
        raise AttnscopeError(
            f"'{selector}' is in {len(messages)} messages, so it can't be put in one place",
            where=context.where,
            allowed=f"one of {', '.join(names[:4])}" if len(names) > 1 else "a segment that occurs once",
            todo="name a segment within one message",
        )


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
