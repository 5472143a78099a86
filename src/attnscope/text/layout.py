"""Layouts: how a prompt's fields become the text a model gets, with the position of every segment in it.

A layout is a line such as `{instruction} {question}`: each field is a segment, the rest is `template`. In a plain
layout, the line is the text; in a chat layout, there is one line per message and the model's chat template joins them.
A template may trim or wrap its input, so segments are located with markers: the same messages are rendered once as they
are and once with a private-use character at each border, and both must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attnscope.errors import AttnscopeError, near
from attnscope.text.segments import TEMPLATE, Piece, Span, Text, whole

_FIELD = re.compile(r"\{(\w+)\}|\{\{|\}\}")
_PRIVATE = range(0xE000, 0xF8FF)  # private-use characters, which have no meaning

Message = tuple[str, str]
"""(role, content)."""


@dataclass(frozen=True)
class Layout:
    """Lines with fields in them, by role; a plain layout has one line, of role None."""

    lines: tuple[tuple[str | None, str], ...]

    @property
    def fields(self) -> list[str]:
        """Its fields, in order."""
        names = (match[1] for _, line in self.lines for match in _FIELD.finditer(line) if match[1])
        return list(dict.fromkeys(names))

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

    def pieces(self, fields: Mapping[str, str]) -> list[tuple[str | None, list[Piece]]]:
        """Each line's pieces, with the fields' text in their places."""
        return [(role, _fill(line, fields)) for role, line in self.lines]


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


def _fill(line: str, fields: Mapping[str, str]) -> list[Piece]:
    pieces: list[Piece] = []
    done = 0
    for match in _FIELD.finditer(line):
        if match.start() > done:
            pieces.append(Piece(TEMPLATE, line[done : match.start()]))
        done = match.end()
        if match[1] is None:
            pieces.append(Piece(TEMPLATE, match[0][0]))
        elif match[1] in fields:
            pieces.append(Piece(match[1], fields[match[1]]))
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


def _joined(pieces: Sequence[Piece]) -> Text:
    spans, text = [], ""
    for piece in pieces:
        spans.append(Span(piece.segment, len(text), len(text) + len(piece.text)))
        text += piece.text
    return whole(text, [span for span in spans if span.segment != TEMPLATE])


def _through_template(lines: Sequence[tuple[str, Sequence[Piece]]], apply: Callable[[Sequence[Message]], str]) -> Text:
    contents = [(role, "".join(piece.text for piece in pieces)) for role, pieces in lines]
    text = apply(contents)
    used = {*text, *(character for _, content in contents for character in content)}
    free = iter(chr(code) for code in _PRIVATE if chr(code) not in used)
    borders = [[next(free) for _ in range(len(pieces) + 1)] for _, pieces in lines]
    with_markers = [(role, _with_markers(pieces, own)) for (role, pieces), own in zip(lines, borders, strict=True)]
    places = _positions(apply(with_markers), {marker for own in borders for marker in own}, text)
    trims = apply([(role, content.strip()) for role, content in contents]) == text
    spans = []
    for (_, pieces), own in zip(lines, borders, strict=True):
        spans += _spans(pieces, places[own[0]], text, trims=trims)
    return whole(text, [span for span in spans if span.segment != TEMPLATE])


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


def _spans(pieces: Sequence[Piece], low: int, text: str, *, trims: bool) -> list[Span]:
    """The spans of one message's pieces. low: the position of its first character that is not whitespace."""
    content = "".join(piece.text for piece in pieces)
    lead = len(content) - len(content.lstrip())
    first, last = (lead, max(lead, len(content.rstrip()))) if trims else (0, len(content))
    if text[low - lead + first : low - lead + last] != content[first:last]:
        raise _changed()
    spans, place = [], 0
    for piece in pieces:
        borders = (place, place + len(piece.text))
        place = borders[1]
        start, end = (low + min(max(border, first), last) - lead for border in borders)
        spans.append(Span(piece.segment, start, end))
    return spans


def _changed() -> AttnscopeError:
    return AttnscopeError(
        "the model's chat template changes the text of messages",
        where="prompts: chat",
        allowed="templates that include each message once, unchanged or trimmed",
        todo="use a plain layout",
    )
