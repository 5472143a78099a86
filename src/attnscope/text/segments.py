"""Segments: the named parts of a prompt, as spans of its text.

A prompt is assembled from pieces, each of one segment; anything that the layout or the model's chat template adds
between them is `template`. Every character of a text belongs to exactly one span.

Items of a list are segments of one family: `passages.1`, `passages.2`. Each may have a role, such as `gold`. A
selector names a segment or a family, and can narrow it by role or by place in the text: `passages[role=gold]`,
`passages[place=1]`, `passages[place=-1]` for the last one.

Every character remembers where it comes from: its number in the base prompt's pieces. So a part that an edit moves
stays the same part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attnscope.errors import AttnscopeError
from attnscope.text.tokens import Token

TEMPLATE, INSERTED, ANSWER = "template", "inserted", "answer"

NEW, FRAME = -1, -2
"""Origins of characters that no piece of the base prompt has: of text that an edit adds, of the chat template."""
OF_ANSWER = 2**40
"""The origin of a given answer's first character, beyond all others."""

Origins = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Some text of one segment, before the prompt is assembled.

    origin: the number of its first character in the base prompt's pieces; None for new text.
    """

    segment: str
    text: str
    role: str | None = None
    origin: int | None = None
    joins: str | None = None
    """The list whose items it separates, if it does."""

    def part(self, start: int, end: int | None = None) -> Piece:
        """Some of its characters, which keep their origin."""
        text = self.text[start:end]
        return replace(self, text=text, origin=None if self.origin is None else self.origin + start)

    def replaced(self, text: str) -> Piece:
        """New text in the same segment."""
        return replace(self, text=text, origin=None)


@dataclass(frozen=True)
class Span:
    """Characters `[start, end)` of a text."""

    segment: str
    start: int
    end: int
    role: str | None = None


@dataclass(frozen=True)
class Text:
    """A whole prompt as the model gets it, and its spans, in order and without gaps."""

    text: str
    spans: tuple[Span, ...]
    origins: Origins = field(default_factory=lambda: np.zeros(0, dtype=np.int64), compare=False, repr=False)
    """(characters,): the number of each in the base prompt's pieces, NEW or FRAME. Empty if unknown."""

    def of(self, segment: str) -> str:
        """The text of a segment, its spans joined."""
        return "".join(self.text[span.start : span.end] for span in self.spans if span.segment == segment)

    def followed_by(self, piece: Piece) -> Text:
        """The same with one more piece at the end."""
        start = len(self.text)
        span = Span(piece.segment, start, start + len(piece.text), piece.role)
        return whole(self.text + piece.text, [*self.spans, span], np.concatenate([self.origins, origins_of(piece)]))


def origins_of(piece: Piece) -> Origins:
    """The origin of each of its characters."""
    if piece.origin is None:
        return np.full(len(piece.text), NEW, dtype=np.int64)
    return np.arange(piece.origin, piece.origin + len(piece.text), dtype=np.int64)


def numbered(pieces: Iterable[Piece], first: int = 0) -> list[Piece]:
    """The pieces of a base prompt with their origins, counted from `first`."""
    counted = []
    for piece in pieces:
        counted.append(replace(piece, origin=first))
        first += len(piece.text)
    return counted


def whole(text: str, known: Iterable[Span], origins: Origins | None = None) -> Text:
    """The text with these spans, in order; gaps become `template`, empty spans are dropped."""
    spans: list[Span] = []
    done = 0
    for span in known:
        if span.start > done:
            spans.append(Span(TEMPLATE, done, span.start))
        if span.end > span.start:
            spans.append(span)
        done = max(done, span.end)
    if done < len(text):
        spans.append(Span(TEMPLATE, done, len(text)))
    return Text(text, tuple(spans), np.zeros(0, dtype=np.int64) if origins is None else origins)


_SELECTOR = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<filters>[^\[\]]*)\])?")
SELECTORS = "a segment such as question, passages, passages.2, passages[role=gold] or passages[place=1]"


@dataclass(frozen=True)
class Selector:
    """A segment or a family of segments, perhaps narrowed by role or by place in the text."""

    name: str
    role: str | None = None
    place: int | None = None
    """From 1 in the order of the text; from -1, its last, backwards."""

    @classmethod
    def of(cls, written: str) -> Selector:
        """Read `passages[role=gold]`."""
        problem = selector_problem(written)
        if problem is not None:
            raise AttnscopeError(problem, where=f"'{written}'", allowed=SELECTORS, todo="write it like one of these")
        name, filters = _parts(written)
        place = filters.get("place")
        return cls(name, filters.get("role"), None if place is None else int(place))

    def covers(self, segment: str) -> bool:
        """Whether a segment has the name, or belongs to the family of that name."""
        return segment == self.name or segment.startswith(f"{self.name}.")

    def segments(self, spans: Sequence[Span] | Sequence[Piece]) -> list[str]:
        """The segments it means, in the order of the text."""
        mine = [each for each in spans if self.covers(each.segment)]
        names = list(dict.fromkeys(each.segment for each in mine))
        if self.role is not None:
            having = {each.segment for each in mine if each.role == self.role}
            names = [name for name in names if name in having]
        if self.place is not None:
            places = list(dict.fromkeys(each.segment for each in mine))
            at = self.place - 1 if self.place > 0 else self.place
            chosen = places[at] if -len(places) <= at < len(places) else None
            names = [name for name in names if name == chosen]
        return names


def selector_problem(written: str) -> str | None:
    """What is wrong with a selector, or None."""
    match = _SELECTOR.fullmatch(written)
    if match is None:
        return "can't read a segment"
    if match["filters"] is None:
        return None
    for each in match["filters"].split(","):
        key, equals, value = (part.strip() for part in each.partition("="))
        if not equals or not value or key not in ("role", "place"):
            return f"'{each.strip()}' is neither role=NAME nor place=NUMBER"
        if key == "place" and not re.fullmatch(r"-?[1-9][0-9]{0,8}", value):
            return f"'{value}' is not a place: places count from 1, or from -1 backwards"
    return None


def _parts(written: str) -> tuple[str, dict[str, str]]:
    match = _SELECTOR.fullmatch(written)
    if match is None:
        return written, {}
    filters = [each.partition("=") for each in (match["filters"] or "").split(",") if each]
    return match["name"], {key.strip(): value.strip() for key, _, value in filters}


def segments_of(tokens: Sequence[Token], spans: Sequence[Span], answered: int = 0) -> list[str]:
    """The segment with most of each token's characters, the first of a tie.

    Special tokens are `template`, except those that an edit inserted. answered: how many of the last tokens are known
    to be the answer, as a model wrote them: they are, special or not. Where an answer is only known as text, special
    tokens that are typed in it are `template` too.
    """
    if answered:
        return [*segments_of(tokens[:-answered], spans), *[ANSWER] * answered]
    if not spans:
        return [TEMPLATE] * len(tokens)
    names = list(dict.fromkeys([TEMPLATE, *(span.segment for span in spans)]))
    owner = owners(spans, names)
    first, last = (np.array([getattr(token, end) for token in tokens], dtype=np.int64) for end in ("start", "end"))
    before = np.zeros((len(owner) + 1, len(names)), dtype=np.int64)  # characters of each segment before each position
    np.cumsum(owner[:, None] == np.arange(len(names)), axis=0, out=before[1:])
    counts = before[last] - before[first]
    most = counts == counts.max(1, keepdims=True)
    chosen = most.argmax(1)
    for place in np.flatnonzero(most.sum(1) > 1):
        chosen[place] = next((each for each in owner[first[place] : last[place]] if most[place, each]), 0)
    special = np.array([token.special for token in tokens], dtype=bool)
    inserted = np.array([name == INSERTED for name in names])[chosen]
    chosen[special & ~inserted] = 0
    return [names[number] for number in chosen]


def characters_of(selector: str, length: int, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Which of a text's characters lie in the segments that a selector means."""
    chosen = set(Selector.of(selector).segments(spans))
    inside = np.zeros(length, dtype=bool)
    for span in spans:
        if span.segment in chosen:
            inside[span.start : span.end] = True
    return inside


def owners(spans: Sequence[Span], names: Sequence[str]) -> NDArray[np.int64]:
    """For each character, the number of its segment in `names`."""
    owner = np.zeros(spans[-1].end if spans else 0, dtype=np.int64)
    for span in spans:
        owner[span.start : span.end] = names.index(span.segment)
    return owner
