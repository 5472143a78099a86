"""The one error for what a user can cause, always told in four parts on one line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class AttnscopeError(Exception):
    """Something the user can mend.

    what: what failed; where: the file, key or value it failed at; allowed: what is allowed, or what is near;
    todo: what to do next.
    """

    def __init__(self, what: str, *, where: str, allowed: str, todo: str) -> None:
        self.what, self.allowed, self.todo = (_one_line(part).rstrip(".;") for part in (what, allowed, todo))
        self.where = _one_line(where)
        super().__init__(f"{self.what} ({self.where}): {self.allowed}; {self.todo}")


class NoRoomError(AttnscopeError):
    """A forward that doesn't fit the memory; fewer prompts at once may."""


def near(word: str, words: Iterable[str]) -> str:
    """The known words nearest to an unknown one, at most three, for the third part of an error."""
    known = sorted(words)
    close = get_close_matches(word.lower(), known, n=3, cutoff=0.5)
    if close:
        return f"near: {', '.join(close)}"
    return f"known: {', '.join(known[:8])}{' and others' if len(known) > 8 else ''}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
