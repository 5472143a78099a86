"""A class rule: tokens by their ids, as in `id:42` or `id:42,43`."""

from __future__ import annotations

import numpy as np

from attnscope.text.rules import Claims, ClassRule, Tokenized


def _problem(argument: str) -> str | None:
    return None if all(part.strip().isdecimal() for part in argument.split(",")) else "ids are whole numbers"


def _claims(argument: str, prompt: Tokenized) -> Claims:
    wanted = {int(part) for part in argument.split(",")}
    return Claims(tokens=np.array([token.id in wanted for token in prompt.tokens], dtype=bool))


TOKEN_ID = ClassRule(
    name="id",
    key="token_id",
    meaning="Tokens of these ids, separated by commas.",
    claims=_claims,
    problem=_problem,
)
