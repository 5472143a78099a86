"""What a class rule declares: how it is written, its argument, and what it claims."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.text.segments import Span
from attnscope.text.tokens import Token

NAME = re.compile(r"[a-z][a-z0-9_]+")
TAKEN = ("in", "within", "label", "colour")
"""Words with another meaning in a class."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Tokenized:
    """A tokenized prompt."""

    text: str
    tokens: Sequence[Token]
    spans: Sequence[Span] = ()
    answered: int = 0
    """How many of the last tokens are known to be the answer."""


@dataclass(frozen=True)
class Claims:
    """What a rule claims: characters of the text, whole tokens, or both.

    characters (len(text),) and tokens (len(tokens),) are True where claimed. Special tokens and tokens without
    characters of their own can only be claimed as tokens.
    """

    characters: Flags | None = None
    tokens: Flags | None = None


def no_problem(argument: str) -> None:
    """Accepts every argument."""


@dataclass(frozen=True, kw_only=True)
class ClassRule:
    """One way to write a class, as in `re:[0-9]+`: the rule `re` with the argument `[0-9]+`."""

    name: str
    """What stands before the colon; two letters or more."""
    meaning: str
    """A sentence for docs and the study file's schema."""
    claims: Callable[[str, Tokenized], Claims]
    """(argument, prompt) -> what belongs to the class."""
    key: str = ""
    """Its key where a study file writes a class as a mapping; by default the name."""
    problem: Callable[[str], str | None] = no_problem
    """(argument) -> what is wrong with it, or None."""
    segments: Callable[[str], Sequence[str]] = lambda argument: ()
    """(argument) -> segments that the prompt has to have."""
    argument_optional: bool = False
    """Whether it may be written without an argument: `special:`, or `special: true` in a study file."""
    numeric: bool = False
    """Whether a study file may give its argument as a whole number: `position: 0`."""
    within: bool = False
    """Whether it can be limited to one segment with `in:SEGMENT:`; for rules that claim characters."""

    def __post_init__(self) -> None:
        for word in (self.name, self.study_key):
            if not NAME.fullmatch(word) or word in TAKEN:
                raise ValueError(
                    f"class rule '{self.name}': a name or key has two or more of a-z, 0-9 and _, begins with a letter "
                    f"and is not {', '.join(TAKEN)}"
                )
        if not self.meaning.strip():
            raise ValueError(f"class rule '{self.name}': it has no meaning")

    @property
    def prefix(self) -> str:
        return f"{self.name}:"

    @property
    def study_key(self) -> str:
        return self.key or self.name
