"""What a regular expression matches in the text: `re:[0-9]+`."""

from __future__ import annotations

from attnscope.text.patterns import matched_characters, pattern_problem
from attnscope.text.rules.rule import Claims, ClassRule, Tokenized


def _claims(argument: str, prompt: Tokenized) -> Claims:
    return Claims(characters=matched_characters(argument, prompt.text, "a class", f"'re:{argument}'"))


PATTERN = ClassRule(
    name="re",
    key="regex",
    meaning="What this pattern matches in the text.",
    claims=_claims,
    problem=pattern_problem,
    within=True,
)
