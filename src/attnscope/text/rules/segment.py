"""A part of the prompt: `segment:question`."""

from __future__ import annotations

from attnscope.text.rules.rule import Claims, ClassRule, Tokenized
from attnscope.text.segments import characters_of, selector_problem


def _claims(argument: str, prompt: Tokenized) -> Claims:
    return Claims(characters=characters_of(argument, len(prompt.text), prompt.spans))


SEGMENT = ClassRule(
    name="segment",
    meaning="A segment of the prompt; `inserted`, `answer` and `template` are segments too. A list is a family of "
    "segments: `passages` is all of it, `passages.2` its second item, `passages[role=gold]` the items with that role, "
    "`passages[place=1]` the one that comes first in the text.",
    claims=_claims,
    problem=selector_problem,
    segments=lambda argument: (argument,),
)
