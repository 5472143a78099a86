"""Answers that the default model writes, beside transformers' `generate` on the same prompts in one padded batch."""

from __future__ import annotations

import torch

import attnscope
from attnscope.study.sampling import Sample
from bench.pair import Pair
from bench.prompts import long_text

MODEL = "smollm2-135m-instruct"
PROMPTS = 8
SAMPLE = Sample(temperature=0.8, top_k=50, top_p=0.95)


def answers(tokens: int, *, sampled: bool) -> Pair:
    """Eight prompts of different lengths, so many tokens each. Both sides tokenize and decode.

    The prompts are the beginnings of running text, which a model does not end after a few tokens.
    """
    lens = attnscope.load(MODEL)
    tokenizer = lens.tokenizer
    tokenizer.padding_side = "left"
    texts = [long_text()[1000 * place :][: 200 + 60 * place] for place in range(PROMPTS)]
    drawn = {"do_sample": True, **SAMPLE.model_dump()} if sampled else {"do_sample": False}

    def base() -> object:
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        with torch.inference_mode():
            written = lens.model.generate(**inputs, max_new_tokens=tokens, **drawn)  # type: ignore[operator]
        return tokenizer.batch_decode(written[:, inputs["input_ids"].shape[1] :])

    def arm() -> object:
        return lens.generate_batch(texts, tokens, sample=SAMPLE if sampled else False)

    how = ", sampling" if sampled else ""
    return Pair(base, arm, f"`model.generate` of one padded batch{how}", tokens=PROMPTS * tokens)
