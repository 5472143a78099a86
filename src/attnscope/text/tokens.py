"""A token of a prompt and its position in the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CONTINUATION = "·"
"""Shown for a token that continues a character already shown with the token before."""


def shown_texts(places: Iterable[tuple[str, int, int]]) -> list[str]:
    """What to show for tokens, given as (text, start, end): each character once, and a space for uncovered gaps.

    If a character is split into several tokens, all of them have it; some encoders don't cover spaces between words.
    """
    shown: list[str] = []
    done = 0
    for text, start, end in places:
        gap = " " if shown and start > done else ""
        shown.append(CONTINUATION if start < end <= done else gap + text)
        done = max(done, end)
    return shown


@dataclass(frozen=True)
class Token:
    """Characters `[start, end)` of the text; special: a special token, such as the start of a text."""

    position: int
    id: int
    text: str
    start: int
    end: int
    special: bool = False
