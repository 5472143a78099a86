"""Masks are recognised by what they hide, wherever they lie in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnscope
from tests.attention import architectures, reference
from tests.tolerances import SHALLOW

TOKENS = 16


@pytest.mark.parametrize("offset", [0, 1, 3, 8])
def test_a_mask_may_be_a_part_of_a_larger_one(offset: int) -> None:
    """It is contiguous then, but may begin in the middle of a word of memory."""
    model = architectures.tiny("llama")
    ids = torch.randint(3, architectures.VOCAB, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    larger = torch.zeros(offset + TOKENS * TOKENS, dtype=torch.bool)
    mask = larger[offset:].view(1, 1, TOKENS, TOKENS)
    mask.copy_(torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril())
    mask[..., 4:, 2] = False
    assert mask.is_contiguous()
    assert mask.storage_offset() == offset
    with torch.no_grad(), attnscope.record(model, queries="all") as record:
        model(ids, attention_mask=mask)
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    attentions = reference.eager(model, {"input_ids": ids, "attention_mask": added}).attentions
    for layer, weights in enumerate(attentions):
        got = record.received[0].at(prompt=0, layer=layer, queries="all").values
        np.testing.assert_allclose(got, weights[0].mean(1), atol=SHALLOW)
