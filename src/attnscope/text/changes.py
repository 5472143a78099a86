"""What edits change in a prompt, stretch by stretch: what is new, what is gone, what stands elsewhere.

Characters that stay in order are the same; of those that don't, as few as possible count as moved. Edits move segments,
so what is between them, the layout's own text, is taken to stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnscope.text.alignment import base_places
from attnscope.text.segments import TEMPLATE, Text

OF_LAYOUT = 1_000  # how much more a character of the layout weighs than one of a segment
Kind = Literal["same", "new", "gone", "moved", "from"]


@dataclass(frozen=True)
class Change:
    """A stretch of text. `moved`: it stands here now; `from`: it stood here before.

    Read without `gone` and `from`, changes give the edited text; without `new` and `moved`, the base text.
    """

    kind: Kind
    text: str
    number: int | None = None
    """Of what moved: the same here and where it came from, from 1."""


@dataclass(frozen=True)
class _Stretch:
    """Characters `[start, end)` of the edited text, which are those from `base` on of the base text; -1 if new."""

    start: int
    end: int
    base: int

    @property
    def base_end(self) -> int:
        return self.base + self.end - self.start


def changes(edited: Text, base: Text) -> list[Change]:
    """The base prompt's text and the edited one's, merged."""
    stretches = _stretches(base_places(edited, base))
    kept = _kept([each for each in stretches if each.base >= 0], _weights(edited))
    moved = [each for each in stretches if each.base >= 0 and each not in kept]
    numbers = {each: number for number, each in enumerate(moved, 1)}
    borders = iter([*(each.base for each in stretches if each in kept), len(base.text)])
    merged = list(_left(base.text, 0, next(borders), numbers))
    for each in stretches:
        words = edited.text[each.start : each.end]
        if each in kept:
            merged.append(Change("same", words))
            merged += _left(base.text, each.base_end, next(borders), numbers)
        else:
            merged.append(Change("new", words) if each.base < 0 else Change("moved", words, numbers[each]))
    return merged


def moved_characters(edited: Text, base: Text) -> NDArray[np.bool_]:
    """(characters,): which of the edited text's characters stand elsewhere than in the base prompt."""
    flags = np.zeros(len(edited.text), dtype=bool)
    done = 0
    for change in changes(edited, base):
        if change.kind in ("same", "new", "moved"):
            flags[done : done + len(change.text)] = change.kind == "moved"
            done += len(change.text)
    return flags


def _stretches(places: NDArray[np.int64]) -> list[_Stretch]:
    """Characters that are together in both texts, or new."""
    if not len(places):
        return []
    step = np.diff(places)
    together = np.where(places[:-1] < 0, places[1:] < 0, step == 1)
    starts = [0, *(np.flatnonzero(~together) + 1).tolist()]
    ends = [*starts[1:], len(places)]
    return [_Stretch(start, end, int(places[start])) for start, end in zip(starts, ends, strict=True)]


def _weights(text: Text) -> NDArray[np.int64]:
    """(characters + 1,): how much the characters before each place weigh together."""
    weights = np.ones(len(text.text), dtype=np.int64)
    for span in text.spans:
        if span.segment == TEMPLATE:
            weights[span.start : span.end] = OF_LAYOUT
    return np.concatenate([[0], weights.cumsum()])


def _kept(stretches: Sequence[_Stretch], weights: NDArray[np.int64]) -> set[_Stretch]:
    """The stretches that stay in order, with as many characters as possible, each counted by its weight."""
    best: list[tuple[int, int]] = []  # of what ends with each stretch: its weight, and the one before it
    for place, each in enumerate(stretches):
        before = [(best[other][0], other) for other in range(place) if stretches[other].base_end <= each.base]
        most, other = max(before, default=(0, -1))
        best.append((most + int(weights[each.end] - weights[each.start]), other))
    kept: set[_Stretch] = set()
    place = max(range(len(best)), key=lambda place: best[place][0], default=-1)
    while place >= 0:
        kept.add(stretches[place])
        place = best[place][1]
    return kept


def _left(text: str, start: int, end: int, moved: dict[_Stretch, int]) -> Iterator[Change]:
    """What the base text has between two stretches that were kept."""
    for each, number in sorted(moved.items(), key=lambda item: item[0].base):
        if start <= each.base and each.base_end <= end:
            if each.base > start:
                yield Change("gone", text[start : each.base])
            yield Change("from", text[each.base : each.base_end], number)
            start = each.base_end
    if end > start:
        yield Change("gone", text[start:end])
