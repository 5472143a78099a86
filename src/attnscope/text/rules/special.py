"""The model's special tokens, such as the start of a text: all with `special:`, those of one name with `special:[SEP]`.

No rule about characters can claim these, whatever they are called.
"""

from __future__ import annotations

import numpy as np

from attnscope.text.rules.rule import Claims, ClassRule, Tokenized


def _claims(argument: str, prompt: Tokenized) -> Claims:
    # some cover the space beside them
    wanted = [
        token.special and (not argument or argument in (token.text, token.text.strip())) for token in prompt.tokens
    ]
    return Claims(tokens=np.array(wanted, dtype=bool))


SPECIAL = ClassRule(
    name="special",
    meaning="The model's special tokens: all (true), or those of one name, such as '[SEP]'.",
    claims=_claims,
    argument_optional=True,
)
