"""What a regular expression matches in the text: `re:[0-9]+`."""

from __future__ import annotations

import numpy as np
import regex

from attnscope.errors import AttnscopeError
from attnscope.text.rules.rule import Claims, ClassRule, Tokenized

SECONDS = 10  # for one prompt


def _problem(argument: str) -> str | None:
    try:
        regex.compile(argument)
    except regex.error as error:
        return f"the pattern can't be read: {error}"
    return None


def _claims(argument: str, prompt: Tokenized) -> Claims:
    matched = np.zeros(len(prompt.text), dtype=bool)
    try:
        for match in regex.compile(argument).finditer(prompt.text, timeout=SECONDS):
            matched[slice(*match.span())] = True
    except TimeoutError as error:
        raise AttnscopeError(
            "the pattern of a class takes too long",
            where=f"'re:{argument}'",
            allowed=f"at most {SECONDS} seconds per prompt",
            todo="write a simpler pattern",
        ) from error
    return Claims(characters=matched)


PATTERN = ClassRule(
    name="re",
    key="regex",
    meaning="What this pattern matches in the text.",
    claims=_claims,
    problem=_problem,
    within=True,
)
