"""A token of a prompt: what it is and where in the text it stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """Characters `[start, end)` of the text; special: a mark of the model's own, such as the start of a text."""

    position: int
    id: int
    text: str
    start: int
    end: int
    special: bool = False
