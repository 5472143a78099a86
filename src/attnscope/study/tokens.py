"""A token of a prompt: what it is and where in the text it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PART = "·"
"""Stands for a token that is a part of a character whose text was shown with the part before."""


def shown_texts(places: Iterable[tuple[str, int, int]]) -> list[str]:
    """Of tokens' texts, starts and ends: each character once. The several tokens of one character all have it."""
    made, done = [], 0
    for text, start, end in places:
        made.append(PART if start < end <= done else text)
        done = max(done, end)
    return made


@dataclass(frozen=True)
class Token:
    """Characters `[start, end)` of the text; special: a mark of the model's own, such as the start of a text."""

    position: int
    id: int
    text: str
    start: int
    end: int
    special: bool = False
