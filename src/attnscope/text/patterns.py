"""Regular expressions over a prompt, with an end to how long they may take."""

from __future__ import annotations

import numpy as np
import regex
from numpy.typing import NDArray

from attnscope.errors import StoppingError

SECONDS = 2  # for one prompt


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"the pattern can't be read: {error}"
    return None


def matched_characters(pattern: str, text: str, what: str, where: str) -> NDArray[np.bool_]:
    """(len(text),): the characters that a pattern matches. what: whose pattern it is, as in "a class"."""
    matched = np.zeros(len(text), dtype=bool)
    try:
        for match in regex.compile(pattern).finditer(text, timeout=SECONDS):
            matched[slice(*match.span())] = True
    except TimeoutError as error:
        raise StoppingError(
            f"the pattern of {what} takes too long",
            where=where,
            allowed=f"at most {SECONDS} seconds per prompt",
            todo="write a simpler pattern",
        ) from error
    return matched
