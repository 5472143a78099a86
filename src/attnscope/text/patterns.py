"""Regular expressions over a prompt, with an end to how long they may take."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from attnscope.errors import StoppingError

SECONDS = 1  # of computing, for one prompt
DEEPEST = 50  # brackets in brackets
LONGEST = 10_000  # characters, with what has to occur again written out: compiling takes time and memory for each

_PARTS = re.compile(
    r"\\."
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a set, in which brackets and signs stand for themselves
    r"|(?P<call>\(\?(?:R|[+-]?[0-9]|&|P[>&])\w*\)?)"
    r"|(?P<open>\()"
    r"|(?P<close>\))"
    r"|(?P<repeat>\+|\{(?P<least>[0-9]*)(?P<more>,[0-9]*)?\})"
    r"|.",
    re.DOTALL,
)


@lru_cache(maxsize=256)
def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    problem = _problem_of_form(pattern)
    if problem is not None:
        return problem
    try:
        regex.compile(pattern)
    except (regex.error, ValueError, OverflowError) as error:
        return f"the pattern can't be read: {error}"
    except (RecursionError, MemoryError):
        return "the pattern is too large to be read"
    return None


def matched_characters(pattern: str, text: str, what: str, where: str) -> NDArray[np.bool_]:
    """(len(text),): the characters that a pattern matches. what: whose pattern it is, as in "a class"."""
    matched = np.zeros(len(text), dtype=bool)
    try:
        for match in regex.compile(pattern).finditer(text, timeout=SECONDS):
            matched[slice(*match.span())] = True
    except (TimeoutError, MemoryError, RecursionError) as error:
        raise StoppingError(
            f"the pattern of {what} takes too {'long' if isinstance(error, TimeoutError) else 'much memory'}",
            where=where,
            allowed=f"at most {SECONDS} second{'s' * (SECONDS != 1)} of computing per prompt",
            todo="write a simpler pattern",
        ) from error
    return matched


def _problem_of_form(pattern: str) -> str | None:
    """What would take memory or time without a bound, so that it must be found before the pattern is compiled."""
    if len(pattern) > LONGEST:
        return f"the pattern has more than {LONGEST:,} characters"
    around: list[int] = []  # for each open bracket: the size of what stands before it, up to the bracket around it
    before = part = 0  # the sizes of what stands in the innermost bracket: of all but the last part, and of that
    for match in _PARTS.finditer(pattern):
        if match["call"]:
            return f"the pattern calls a part of itself with '{match['call']}', which may never end"
        if match["open"]:
            around.append(before + part)
            before = part = 0
            if len(around) > DEEPEST:
                return f"the pattern has more than {DEEPEST} brackets within each other"
        elif match["close"]:
            before, part = around.pop() if around else 0, before + part + 1
        elif match["repeat"]:
            part *= _occurrences(match["least"], match["more"])
        else:
            before, part = before + part, 1
        if before + part > LONGEST:
            return f"the pattern has more than {LONGEST:,} characters with its repeats written out"
    return None


def _occurrences(least: str | None, more: str | None) -> int:
    """How often a repeated part is written out. least, more: `3` and `,5` of `{3,5}`; None for `+`."""
    if least is None:
        return 2
    if max(len(least), len(more or "")) > 10:  # thousands of digits are no number to Python
        return LONGEST + 1
    return max(1, int(least or 0) + (more is not None))
