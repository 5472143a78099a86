"""A sweep of single-layer knock-outs of the default model, beside as many plain forwards."""

from __future__ import annotations

import torch

import attnscope
from bench.pair import Pair
from bench.prompts import long_text

MODEL = "smollm2-135m-instruct"
ANSWER = " and so on"


def sweep(tokens: int) -> Pair:
    """The letters e are hidden from the tokens that write an answer, in each layer alone. The base has its head too."""
    lens = attnscope.load(MODEL)
    lens.model.set_attn_implementation("sdpa")
    ids = lens.tokenizer(long_text())["input_ids"][:tokens]
    text = lens.tokenizer.decode(ids)
    whole = torch.tensor([lens.tokenizer(text + ANSWER)["input_ids"]])
    layers = len(lens.heads_by_layer)

    def base() -> object:
        with torch.inference_mode():
            return [lens.model(whole, use_cache=False, logits_to_keep=4) for _ in range(layers)]

    def arm() -> object:
        return lens.sweep(text, ANSWER, hide="re:\\be\\w*", draws=0)

    return Pair(base, arm, f"{layers} plain forwards, sdpa", tokens=whole.shape[1])
