"""Any of some characters: `#*`, or `chars:#*`."""

from __future__ import annotations

import numpy as np

from attnscope.text.rules.rule import Claims, ClassRule, Tokenized


def _claims(argument: str, prompt: Tokenized) -> Claims:
    wanted = set(argument)
    return Claims(characters=np.fromiter((each in wanted for each in prompt.text), dtype=bool, count=len(prompt.text)))


CHARACTERS = ClassRule(
    name="chars",
    key="characters",
    meaning="Any of these characters.",
    claims=_claims,
    within=True,
)
