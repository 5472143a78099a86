"""A part of the prompt: `segment:question`."""

from __future__ import annotations

from attnscope.text.rules.rule import Claims, ClassRule, Tokenized
from attnscope.text.segments import characters_of


def _claims(argument: str, prompt: Tokenized) -> Claims:
    return Claims(characters=characters_of(argument, len(prompt.text), prompt.spans))


SEGMENT = ClassRule(
    name="segment",
    meaning="A segment of the prompt; `inserted`, `answer` and `template` are segments too.",
    claims=_claims,
    segments=lambda argument: (argument,),
)
