"""How answers are sampled, in a study file and in Python."""

from __future__ import annotations

from pydantic import Field

from attnscope.spec import Spec


class Sample(Spec):
    """How an answer's tokens are drawn: by default from the model's own probabilities, as they are.

    As in transformers, the temperature comes first, then top_k, then top_p of what is left.
    """

    temperature: float = Field(
        1.0,
        strict=True,
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="Divides the logits: below 1, likely tokens become likelier; 1 leaves the model's probabilities.",
    )
    top_k: int | None = Field(None, strict=True, ge=1, description="Draw only from this many of the likeliest tokens.")
    top_p: float | None = Field(
        None,
        strict=True,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Draw only from the likeliest tokens that together have this probability.",
    )
