"""Layouts: how a prompt's fields become the text a model gets, with every segment's place in it known.

A layout is a line such as `{instruction} {question}`: each field is a segment, the rest is `template`. Laid out plain,
the line is the text; as a chat, one line is written for each message and the model's own chat template puts them
together. A template may trim or wrap what it is given, so the places of the segments are found with marks: the same
messages are rendered once as they are and once with a private character at each border, and both must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attnscope.errors import AttnscopeError, near
from attnscope.text.segments import TEMPLATE, Piece, Span, Text, whole

_FIELD = re.compile(r"\{(\w+)\}|\{\{|\}\}")
_PRIVATE = range(0xE000, 0xF8FF)  # characters that mean nothing to anyone

Message = tuple[str, str]
"""(role, content)."""


@dataclass(frozen=True)
class Layout:
    """Lines with fields in them, by role; a plain layout has one line, of role None."""

    lines: tuple[tuple[str | None, str], ...]

    @property
    def fields(self) -> list[str]:
        """The fields it has, in order."""
        found = (match[1] for _, line in self.lines for match in _FIELD.finditer(line) if match[1])
        return list(dict.fromkeys(found))

    def times(self, field: str) -> int:
        """How often a field is in it."""
        return sum(match[1] == field for _, line in self.lines for match in _FIELD.finditer(line))

    @property
    def chat(self) -> bool:
        return any(role is not None for role, _ in self.lines)

    @property
    def key(self) -> str:
        """The study file's word for it."""
        return "chat" if self.chat else "plain"

    def pieces(self, fields: Mapping[str, str]) -> list[tuple[str | None, list[Piece]]]:
        """Each line's pieces, with the fields' text in their places."""
        return [(role, _fill(line, fields)) for role, line in self.lines]


@dataclass(frozen=True)
class Layouts:
    """How prompts are laid out: for models with a chat template, and for the others. At least one is given."""

    chat: Layout | None = None
    plain: Layout | None = None

    @property
    def every(self) -> list[Layout]:
        """Those that are given."""
        return [layout for layout in (self.chat, self.plain) if layout is not None]

    @property
    def fields(self) -> list[str]:
        """The fields of all of them, in order."""
        return list(dict.fromkeys(field for layout in self.every for field in layout.fields))

    def chosen(self, *, has_template: bool) -> Layout:
        """The one for a model. Where only one is given it is used for every model."""
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
                f"the layout has a field '{match[1]}' that the prompt has not",
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
    marked = [(role, _marked(pieces, own)) for (role, pieces), own in zip(lines, borders, strict=True)]
    places = _places(apply(marked), {mark for own in borders for mark in own}, text)
    trims = apply([(role, content.strip()) for role, content in contents]) == text
    spans = []
    for (_, pieces), own in zip(lines, borders, strict=True):
        spans += _spans(pieces, places[own[0]], text, trims=trims)
    return whole(text, [span for span in spans if span.segment != TEMPLATE])


def _places(rendered: str, marks: set[str], text: str) -> dict[str, int]:
    """Where in the text each mark of the marked rendering stands."""
    places: dict[str, int] = {}
    plain: list[str] = []
    twice = False
    for character in rendered:
        if character in marks:
            twice = twice or character in places
            places[character] = len(plain)
        else:
            plain.append(character)
    if "".join(plain) != text or len(places) < len(marks) or twice:
        raise _changed()
    return places


def _marked(pieces: Sequence[Piece], marks: Sequence[str]) -> str:
    """A mark at each border; those in the blanks at either end move inward, so that trimming trims what it would."""
    content = "".join(piece.text for piece in pieces)
    lead = len(content) - len(content.lstrip())
    trail = max(lead, len(content.rstrip()))
    made, done, place = "", 0, 0
    for mark, piece in zip(marks, [*pieces, Piece(TEMPLATE, "")], strict=True):
        border = min(max(place, lead), trail)
        made += content[done:border] + mark
        done, place = border, place + len(piece.text)
    return made + content[done:]


def _spans(pieces: Sequence[Piece], low: int, text: str, *, trims: bool) -> list[Span]:
    """Where the pieces of one message stand. low: where its first character that is no blank does."""
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
        "the model's chat template changes the text it is given",
        where="prompts: chat",
        allowed="templates that pass each message on once, as it is or trimmed",
        todo="use a plain layout",
    )
