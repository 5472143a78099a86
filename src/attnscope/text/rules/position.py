"""Tokens by their position in the prompt: `position:0` is the first, `position:-1` the last, `position:0-3` several.

Special tokens are counted too. A prompt that is too short has no such token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from attnscope.text.rules.rule import Claims, ClassRule, Tokenized

PART = re.compile(r"(-?[0-9]{1,9})(?:-(-?[0-9]{1,9}))?")
ALLOWED = "positions count from 0, or from -1 backwards: 0, -1, 0-3 or 1,5"


def _parts(argument: str) -> Iterator[tuple[int, int]]:
    """The first and last position of each part."""
    for part in argument.split(","):
        match = PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"'{part.strip()}' is not a position; {ALLOWED}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first and (first < 0) == (last < 0):
            raise ValueError(f"'{part.strip()}' ends before it begins; {ALLOWED}")
        yield first, last


def _problem(argument: str) -> str | None:
    try:
        list(_parts(argument))
    except ValueError as error:
        return str(error)
    return None


def _claims(argument: str, prompt: Tokenized) -> Claims:
    count = len(prompt.tokens)
    places = np.arange(count)
    claimed = np.zeros(count, dtype=bool)
    for first, last in _parts(argument):
        low, high = (end + count if end < 0 else end for end in (first, last))
        claimed |= (places >= low) & (places <= high)
    return Claims(tokens=claimed)


POSITION = ClassRule(
    name="position",
    meaning="Tokens by their position in the prompt, special tokens included: 0 is the first, -1 the last; 0-3 and 1,5 "
    "are several.",
    claims=_claims,
    problem=_problem,
    numeric=True,
)
