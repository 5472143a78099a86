"""A token of a prompt: what it is and where in the text it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PART = "·"
"""Stands for a token that is a part of a character whose text was shown with the part before."""


def shown_texts(places: Iterable[tuple[str, int, int]]) -> list[str]:
    """Of tokens' texts, starts and ends, what to show: each character once, and a space for those no token covers.

    The several tokens of one character all have it; tokens of some encoders don't cover the spaces between words.
    """
    shown: list[str] = []
    done = 0
    for text, start, end in places:
        gap = " " if shown and start > done else ""
        shown.append(PART if start < end <= done else gap + text)
        done = max(done, end)
    return shown


@dataclass(frozen=True)
class Token:
    """Characters `[start, end)` of the text; special: a special token of the model, such as the start of a text."""

    position: int
    id: int
    text: str
    start: int
    end: int
    special: bool = False
