"""Segments: the named parts of a prompt, as spans of its text.

A prompt is assembled from pieces, each of one segment; anything that the layout or the model's chat template adds
between them is `template`. Every character of a text belongs to exactly one span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.text.tokens import Token

TEMPLATE, INSERTED, ANSWER = "template", "inserted", "answer"


@dataclass(frozen=True)
class Piece:
    """Some text of one segment, before the prompt is assembled."""

    segment: str
    text: str


@dataclass(frozen=True)
class Span:
    """Characters `[start, end)` of a text."""

    segment: str
    start: int
    end: int


@dataclass(frozen=True)
class Text:
    """A whole prompt as the model gets it, and its spans, in order and without gaps."""

    text: str
    spans: tuple[Span, ...]

    def of(self, segment: str) -> str:
        """The text of a segment, its spans joined."""
        return "".join(self.text[span.start : span.end] for span in self.spans if span.segment == segment)

    def followed_by(self, piece: Piece) -> Text:
        """The same with one more piece at the end."""
        start = len(self.text)
        return whole(self.text + piece.text, [*self.spans, Span(piece.segment, start, start + len(piece.text))])


def whole(text: str, known: Iterable[Span]) -> Text:
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
    return Text(text, tuple(spans))


def segments_of(tokens: Sequence[Token], spans: Sequence[Span]) -> list[str]:
    """The segment with most of each token's characters, the first of a tie; special tokens are `template`."""
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
    chosen[[token.special for token in tokens]] = 0
    return [names[number] for number in chosen]


def characters_of(segment: str, length: int, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Which of a text's characters lie in a segment."""
    inside = np.zeros(length, dtype=bool)
    for span in spans:
        if span.segment == segment:
            inside[span.start : span.end] = True
    return inside


def owners(spans: Sequence[Span], names: Sequence[str]) -> NDArray[np.int64]:
    """For each character, the number of its segment in `names`."""
    owner = np.zeros(spans[-1].end if spans else 0, dtype=np.int64)
    for span in spans:
        owner[span.start : span.end] = names.index(span.segment)
    return owner
