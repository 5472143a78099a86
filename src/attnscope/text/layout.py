"""Layouts: how a prompt's fields become the text a model gets, with the position of every segment in it.

A layout is a line such as `{instruction} {question}`: each field is a segment, the rest is `template`. A message
without fields is a segment named by its role, and a field with a list or a chat is several (see `values`). In a plain
layout, the line is the text; in a chat layout, there is one line per message and the model's chat template joins them.
A template may trim or wrap its input, so segments are located with markers: the same messages are rendered once as they
are and once with a private-use character at each border, and both must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from attnscope.errors import AttnscopeError, near
from attnscope.text.segments import FRAME, INSERTED, TEMPLATE, Piece, Span, Text, numbered, origins_of, whole
from attnscope.text.values import SYSTEM, TURN, Chat, Fields, Items, Value

_FIELD = re.compile(r"\{(\w+)\}|\{\{|\}\}")
_PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))  # without a meaning

Message = tuple[str, str]
"""(role, content)."""


@dataclass(frozen=True)
class Layout:
    """Lines with fields in them, by role; a plain layout has one line, of role None.

    inserted: whether its prompts may have inserted text, as they are after some edits.
    """

    lines: tuple[tuple[str | None, str], ...]
    inserted: bool = False

    @property
    def fields(self) -> list[str]:
        """Its fields, in order."""
        names = (match[1] for _, line in self.lines for match in _FIELD.finditer(line) if match[1])
        return list(dict.fromkeys(names))

    @property
    def segments(self) -> list[str]:
        """The segments or families of segments that its prompts have: its fields, and messages without any."""
        own = (name for role, line in self.lines for name in _segments_in(role, line))
        return list(dict.fromkeys([*own, *([INSERTED] if self.inserted else [])]))

    def may_have(self, segment: str) -> bool:
        """Whether its prompts can have a segment; whether they do depends on their lists and chats."""
        root = segment.partition(".")[0]
        chats = any(alone and alone[1] for role, line in self.lines if role for alone in [_FIELD.fullmatch(line)])
        return root in self.segments or (chats and root in (SYSTEM, TURN))

    def times(self, field: str) -> int:
        """How often a field occurs."""
        return sum(match[1] == field for _, line in self.lines for match in _FIELD.finditer(line))

    @property
    def chat(self) -> bool:
        return any(role is not None for role, _ in self.lines)

    @property
    def key(self) -> str:
        """Its key in a study file."""
        return "chat" if self.chat else "plain"

    def pieces(self, fields: Fields) -> list[tuple[str | None, list[Piece]]]:
        """Each line's pieces, with the fields' text in their places, and where each comes from.

        A line that is nothing but a field with a chat becomes the chat's messages.
        """
        lines: list[tuple[str | None, list[Piece]]] = []
        done = 0
        for role, pieces in self._filled(fields):
            lines.append((role, numbered(pieces, done)))
            done += sum(len(piece.text) for piece in pieces)
        return lines

    def _filled(self, fields: Fields) -> Iterator[tuple[str | None, list[Piece]]]:
        for role, line in self.lines:
            alone = _FIELD.fullmatch(line)
            chat = fields.get(alone[1]) if alone and alone[1] else None
            if isinstance(chat, Chat) and role is not None:
                yield from chat.lines()
            elif role is not None and not any(match[1] for match in _FIELD.finditer(line)):
                yield role, [Piece(role, _unbraced(line), role)]
            else:
                yield role, _fill(line, fields)


@dataclass(frozen=True)
class Layouts:
    """How prompts are laid out, for models with and without a chat template. At least one is given."""

    chat: Layout | None = None
    plain: Layout | None = None

    @property
    def every(self) -> list[Layout]:
        """The given layouts."""
        return [layout for layout in (self.chat, self.plain) if layout is not None]

    @property
    def fields(self) -> list[str]:
        """The fields of all layouts, in order."""
        return list(dict.fromkeys(field for layout in self.every for field in layout.fields))

    def chosen(self, *, has_template: bool) -> Layout:
        """The layout for a model. If only one is given, it is used for every model."""
        first, second = (self.chat, self.plain) if has_template else (self.plain, self.chat)
        layout = first or second
        if layout is None:
            raise ValueError("a study has a layout")
        return layout


def lay_out(
    lines: Sequence[tuple[str | None, Sequence[Piece]]], apply: Callable[[Sequence[Message]], str] | None
) -> Text:
    """Pieces -> one text with its spans. apply: the model's chat template, for a layout with roles."""
    if all(role is None for role, _ in lines):
        return _joined([piece for _, pieces in lines for piece in pieces])
    if apply is None:
        raise ValueError("a chat layout needs a chat template")
    return _through_template([(role or "user", list(pieces)) for role, pieces in lines], apply)


def _segments_in(role: str | None, line: str) -> list[str]:
    fields = [match[1] for match in _FIELD.finditer(line) if match[1]]
    return fields or ([] if role is None else [role])


def _unbraced(line: str) -> str:
    """A line without fields as it is shown: `{{` is a brace."""
    return _FIELD.sub(lambda match: match[0][0], line)


def _fill(line: str, fields: Fields) -> list[Piece]:
    pieces: list[Piece] = []
    done = 0
    for match in _FIELD.finditer(line):
        if match.start() > done:
            pieces.append(Piece(TEMPLATE, line[done : match.start()]))
        done = match.end()
        if match[1] is None:
            pieces.append(Piece(TEMPLATE, match[0][0]))
        elif match[1] in fields:
            pieces += _pieces_of(match[1], fields[match[1]])
        else:
            raise AttnscopeError(
                f"the layout has a field '{match[1]}' that the prompt lacks",
                where=f"'{line}'",
                allowed=near(match[1], fields),
                todo="use the prompts' own fields, or write {{ and }} for braces",
            )
    if done < len(line):
        pieces.append(Piece(TEMPLATE, line[done:]))
    return pieces


def _pieces_of(field: str, value: Value) -> list[Piece]:
    if isinstance(value, Chat):
        raise AttnscopeError(
            f"field '{field}' is a chat of several messages, which needs a chat layout of its own",
            where="prompts: chat",
            allowed=f'chat: "{{{field}}}", for models with a chat template',
            todo="write the layout like that, or choose another model",
        )
    return list(value.pieces(field)) if isinstance(value, Items) else [Piece(field, value)]


def _joined(pieces: Sequence[Piece]) -> Text:
    spans, text = [], ""
    for piece in pieces:
        spans.append(Span(piece.segment, len(text), len(text) + len(piece.text), piece.role))
        text += piece.text
    origins = np.concatenate([np.zeros(0, dtype=np.int64), *map(origins_of, pieces)])
    return whole(text, [span for span in spans if span.segment != TEMPLATE], origins)


def _through_template(lines: Sequence[tuple[str, Sequence[Piece]]], apply: Callable[[Sequence[Message]], str]) -> Text:
    contents = [(role, "".join(piece.text for piece in pieces)) for role, pieces in lines]
    text = apply(contents)
    used = {*text, *(character for _, content in contents for character in content)}
    free = (chr(code) for code in chain(*_PRIVATE) if chr(code) not in used)
    borders = [list(islice(free, len(pieces) + 1)) for _, pieces in lines]
    if len(borders[-1]) <= len(lines[-1][1]):
        raise AttnscopeError(
            f"the prompt has {sum(len(pieces) for _, pieces in lines):,} parts, too many to find again",
            where="prompts: chat",
            allowed=f"at most {sum(map(len, _PRIVATE)):,}, less one for each message",
            todo="use a plain layout, or shorter lists",
        )
    with_markers = [(role, _with_markers(pieces, own)) for (role, pieces), own in zip(lines, borders, strict=True)]
    places = _positions(apply(with_markers), {marker for own in borders for marker in own}, text)
    trims = apply([(role, content.strip()) for role, content in contents]) == text
    spans = []
    origins = np.full(len(text), FRAME, dtype=np.int64)
    for (_, pieces), own in zip(lines, borders, strict=True):
        for span, offset, piece in _spans(pieces, places[own[0]], text, trims=trims):
            origins[span.start : span.end] = origins_of(piece)[offset : offset + span.end - span.start]
            spans.append(span)
    return whole(text, [span for span in spans if span.segment != TEMPLATE], origins)


def _positions(rendered: str, markers: set[str], text: str) -> dict[str, int]:
    """The position in the text of each marker in the rendering with markers."""
    places: dict[str, int] = {}
    plain: list[str] = []
    twice = False
    for character in rendered:
        if character in markers:
            twice = twice or character in places
            places[character] = len(plain)
        else:
            plain.append(character)
    if "".join(plain) != text or len(places) < len(markers) or twice:
        raise _changed()
    return places


def _with_markers(pieces: Sequence[Piece], markers: Sequence[str]) -> str:
    """The text with a marker at each border, but none in leading or trailing whitespace, so it can still be trimmed."""
    content = "".join(piece.text for piece in pieces)
    lead = len(content) - len(content.lstrip())
    trail = max(lead, len(content.rstrip()))
    content_with_markers, done, place = "", 0, 0
    for marker, piece in zip(markers, [*pieces, Piece(TEMPLATE, "")], strict=True):
        border = min(max(place, lead), trail)
        content_with_markers += content[done:border] + marker
        done, place = border, place + len(piece.text)
    return content_with_markers + content[done:]


def _spans(pieces: Sequence[Piece], low: int, text: str, *, trims: bool) -> Iterator[tuple[Span, int, Piece]]:
    """The spans of one message's pieces, each with how many of the piece's characters were trimmed before it.

    low: the position of the message's first character that is not whitespace.
    """
    content = "".join(piece.text for piece in pieces)
    lead = len(content) - len(content.lstrip())
    first, last = (lead, max(lead, len(content.rstrip()))) if trims else (0, len(content))
    if text[low - lead + first : low - lead + last] != content[first:last]:
        raise _changed()
    place = 0
    for piece in pieces:
        start, end = (min(max(border, first), last) for border in (place, place + len(piece.text)))
        yield Span(piece.segment, low + start - lead, low + end - lead, piece.role), max(0, start - place), piece
        place += len(piece.text)


def _changed() -> AttnscopeError:
    return AttnscopeError(
        "the model's chat template changes the text of messages",
        where="prompts: chat",
        allowed="templates that include each message once, unchanged or trimmed",
        todo="use a plain layout",
    )
