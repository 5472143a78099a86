"""Edits while somebody else's code runs a model: in whole forwards, and step by step with a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnscope import AttnscopeError, record
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.hide import Hide
from attnscope.edits.attention.patch import Patch
from tests.attention import architectures
from tests.attention.intervened import ByHand, changed

IDS = torch.randint(3, architectures.VOCAB, (1, 20), generator=torch.Generator().manual_seed(3))
KEYS = (12, 15)
NAMES = ["llama", "gemma2, softcap and window", "mistral, window", "gpt-oss, sinks and window", "gpt2"]


def hidden(tokens: int, first: int) -> Tensor:
    square = torch.zeros(1, tokens, tokens, dtype=torch.bool)
    square[:, first:, list(KEYS)] = True
    return square.tril(-1)


@pytest.mark.parametrize("how", ["renormalise", "zero"])
@pytest.mark.parametrize("name", NAMES)
def test_tokens_written_with_a_cache_are_those_of_whole_forwards_changed_by_hand(name: str, how: Any) -> None:
    model: Any = architectures.tiny(name)
    edits = [Hide(hide=KEYS, layers=(1, 2), how=how), Ablate(ablate={0: (1,)})]
    with torch.no_grad(), record(model, queries=["last"], edits=edits) as recording:
        out = model.generate(
            IDS, max_new_tokens=9, do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=None
        )
    assert len(recording) == 9
    text = out.sequences[:, :-1]
    square = torch.zeros(1, 28, 28, dtype=torch.bool)
    square[:, :, list(KEYS)] = True
    parts = {"masks" if how == "renormalise" else "zeros": {1: square, 2: square}}
    hand = ByHand(outputs={(0, 1): torch.zeros_like}, **parts)
    with changed(model, hand):
        want = model(input_ids=text).logits[0, 19:]
    got = torch.stack(out.logits)[:, 0]
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    for step in recording.steps:
        kept = [key for key in KEYS if step.received.values.shape[-1] > key]
        assert not step.received.values[:, 1:, :, :, kept].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_patched_prompt_is_written_on_with_a_cache_as_by_whole_forwards_patched_by_hand(name: str) -> None:
    """The tokens that are written keep their own outputs, or get the one vector that is for every token."""
    model: Any = architectures.tiny(name)
    values = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    everywhere = np.linspace(-1, 1, 8, dtype=np.float32)
    edits = [
        Patch(patch={1: (3,)}, values={1: {3: values}}, align=tuple(range(20))),
        Patch(patch={0: (1,)}, values={0: {1: everywhere}}),
    ]
    with torch.no_grad(), record(model, queries=["last"], edits=edits):
        out = model.generate(
            IDS, max_new_tokens=9, do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=None
        )
    hand = ByHand(
        outputs={
            (1, 3): lambda output: torch.cat([torch.tensor(values)[None], output[:, 20:]], 1),
            (0, 1): lambda output: torch.tensor(everywhere).expand_as(output),
        }
    )
    with changed(model, hand):
        want = model(input_ids=out.sequences[:, :-1]).logits[0, 19:]
    torch.testing.assert_close(torch.stack(out.logits)[:, 0], want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Patch(patch={0: (1,)}, values={0: {1: np.ones((20, 8))}}), "values are of 20 tokens, the prompt has 21"),
        (Ablate(ablate={0: (9,)}), "no head 9"),
        (Ablate(ablate={7: (0,)}), "no attention to edit in layer 7"),
        (Hide(hide=(40,)), "no token 40"),
        (Hide(hide="#"), "matches no token"),
        (Ablate(ablate={0: (1,)}, how="mean"), "mean output is not known"),
    ],
)
def test_what_cannot_be_edited_in_a_recording_is_refused(edit: Any, words: str) -> None:
    model: Any = architectures.tiny("llama")
    with pytest.raises(AttnscopeError, match=words), torch.no_grad(), record(model, edits=[edit]):
        model.generate(IDS, max_new_tokens=3, do_sample=False)


def test_edits_are_refused_where_they_would_break_gradients_or_mean_other_tokens() -> None:
    model: Any = architectures.tiny("llama")
    with pytest.raises(AttnscopeError, match="gradients"), record(model, edits=[Hide(hide=(3,), queries=(5,))]):
        model(IDS)
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[0, :4] = 0
    with pytest.raises(AttnscopeError, match="pads"), torch.no_grad(), record(model, edits=[Hide(hide=(8,))]):
        model(IDS.repeat(2, 1), attention_mask=mask)
