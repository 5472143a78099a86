"""Lets a model write its answer: always the likeliest next token, so that the same prompt gets the same answer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import GenerationConfig, PreTrainedModel

from attnscope.attention.device import input_device
from attnscope.errors import AttnscopeError


def write_answer(model: PreTrainedModel, name: str, ids: Sequence[int], most: int) -> list[int]:
    """At most so many tokens after the prompt, without the mark that ends an answer."""
    if not model.can_generate():
        raise AttnscopeError(
            f"{name} writes no text",
            where=type(model).__name__,
            allowed="models with a language model head",
            todo="load the model with its head, or choose another one",
        )
    own = getattr(model, "generation_config", None)
    ends = getattr(own, "eos_token_id", None)
    endings = set(ends) if isinstance(ends, list) else {ends}
    prompt = torch.tensor([list(ids)], device=input_device(model))
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=most,
        do_sample=False,
        num_beams=1,
        eos_token_id=ends,
        pad_token_id=next(iter(endings - {None}), 0),
    )
    with torch.no_grad():
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)  # type: ignore[operator]
    written = [int(token) for token in made[0, len(ids) :]]
    while written and written[-1] in endings:
        written.pop()
    return written
