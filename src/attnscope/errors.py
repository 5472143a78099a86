"""The one error for what a user can cause: four parts, printed on one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any
from unicodedata import category

LONGEST_NAME, LONGEST_PART = 120, 1000  # characters of a name in quotes, and of one part of an error
_NAME = re.compile(rf"(?<!\w)'[^'\s/]{{{LONGEST_NAME + 1},}}'(?!\w)")  # not a path or a command, which may be copied
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Parameter:
    """A parameter of the public API that an error refers to.

    Python callers read `layers=`, or `device='tpu'` with a value. The command line prints its own flag instead,
    `--layers` or `--device tpu`, so library code never spells a flag.
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.name}=" if self.value is None else f"{self.name}={self.value!r}"


Words = str | Parameter | Sequence[str | Parameter]
"""One part of an error. A sequence is joined without spaces: `("pass ", Parameter("chat", False))`."""


class AttnscopeError(Exception):
    """Something the user can fix.

    what: what failed; where: the file, key, parameter or value it failed at; allowed: what is allowed, or what comes
    close; todo: what to do next.
    """

    def __init__(self, what: Words, *, where: Words, allowed: Words, todo: Words) -> None:
        self._parts = (what, where, allowed, todo)
        self.what, self.where, self.allowed, self.todo = self._spelled(str)
        super().__init__(self.message())

    def __reduce__(self) -> tuple[Any, ...]:
        """So that an error arrives whole from another process."""
        what, where, allowed, todo = self._parts
        return partial(type(self), where=where, allowed=allowed, todo=todo), (what,), vars(self)

    def message(self, spell: Callable[[Parameter], str] = str) -> str:
        """The error on one line. spell: how a parameter is written, as in Python by default."""
        what, where, allowed, todo = self._spelled(spell)
        return f"{what} ({where}): {allowed}; {todo}"

    def _spelled(self, spell: Callable[[Parameter], str]) -> tuple[str, str, str, str]:
        what, where, allowed, todo = (_shortened(_one_line(_joined(part, spell))) for part in self._parts)
        return what.rstrip(".;"), where, allowed.rstrip(".;"), todo.rstrip(".;")


class NoRoomError(AttnscopeError):
    """A forward that doesn't fit in memory; fewer prompts at once may fit."""


class StoppingError(AttnscopeError):
    """A mistake that is not the prompt's at which it shows: it stops the command instead of leaving that prompt out."""


class PluginError(StoppingError):
    """A mistake of something that a package adds."""


def placed(error: AttnscopeError, place: str) -> AttnscopeError:
    """The same error, with the place that led to it before its own."""
    what, where, allowed, todo = error._parts
    own = [where] if isinstance(where, str | Parameter) else where
    return AttnscopeError(what, where=(f"{place}: ", *own), allowed=allowed, todo=todo)


def restated(error: AttnscopeError, failed: str, place: str) -> AttnscopeError:
    """The same error, of something larger that failed because of it, at its place."""
    what, _, allowed, todo = error._parts
    own = [what] if isinstance(what, str | Parameter) else what
    return AttnscopeError((f"{failed}: ", *own), where=place, allowed=allowed, todo=todo)


def near(word: object, words: Iterable[str]) -> str:
    """The known words nearest to an unknown one, at most three, for the third part of an error."""
    known = sorted(words)
    if not known:
        return "there are none"
    close = get_close_matches(str(word).lower(), known, n=3, cutoff=0.5)
    if close:
        return f"near: {', '.join(close)}"
    return f"known: {', '.join(known[:8])}{' and others' if len(known) > 8 else ''}"


def _joined(part: Words, spell: Callable[[Parameter], str]) -> str:
    pieces = [part] if isinstance(part, str | Parameter) else part
    return "".join(spell(piece) if isinstance(piece, Parameter) else piece for piece in pieces)


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def _shortened(text: str) -> str:
    """The text without the middle of long names, such as misspelt ones, and of all that is too long for a part."""
    return _cut(_NAME.sub(lambda match: _cut(match[0], LONGEST_NAME), text), LONGEST_PART)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]}...{text[-end:]}"


def visible(text: str) -> str:
    """The text with characters escaped that would control the terminal or the direction of text."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    harmless = character.isprintable() or (category(character) not in ("Cc", "Cs") and character not in _DIRECTIONS)
    return character if harmless else character.encode("unicode_escape").decode()
