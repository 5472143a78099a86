"""Edits at the seam: what is hidden gets nothing, and the rest is what the model itself would do with such a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope import AttnscopeError, Lens
from attnscope.attention.interface import implementation, quiet
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.hide import Hide
from attnscope.edits.attention.patch import Patch
from tests.attention.architectures import GROUPED
from tests.models import tiny
from tests.plugin.attnscope_dummy.sharpen import Sharpen
from tests.tolerances import SHALLOW

SIZES: dict[str, Any] = {**GROUPED, "vocab_size": len(tiny.VOCABULARY), "max_position_embeddings": 256}
IDS = torch.randint(3, SIZES["vocab_size"], (30,), generator=torch.Generator().manual_seed(2)).tolist()


@pytest.fixture(scope="module")
def lens() -> Lens:
    torch.manual_seed(4)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return Lens(model, tiny.tokenizer())


def eager(lens: Lens, hidden: torch.Tensor) -> Any:
    """The model with keys hidden by its own mask: hidden (queries, keys)."""
    seen = torch.ones(len(IDS), len(IDS), dtype=torch.bool).tril() & ~hidden
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo().min)[None, None]
    with quiet(lens.model), implementation(lens.model, "eager"):
        return lens.model(input_ids=torch.tensor([IDS]), attention_mask=mask, output_attentions=True)


@pytest.mark.parametrize("queries", [["last"], ["last", "all"]])
@settings(deadline=None, max_examples=20)
@given(keys=st.sets(st.integers(1, 28), min_size=1, max_size=9), rows=st.sets(st.integers(9, 29), min_size=1))
def test_hidden_keys_are_hidden_as_by_the_models_own_mask(
    lens: Lens, queries: list[str], keys: set[int], rows: set[int]
) -> None:
    edit = Hide(hide=tuple(keys), queries=tuple(rows))
    record = lens.measure_tokens(IDS, queries, edits=[edit])
    hidden = torch.zeros(30, 30, dtype=torch.bool)
    hidden[torch.tensor(sorted(rows))[:, None], torch.tensor(sorted(keys))] = True
    attentions = eager(lens, hidden).attentions
    for layer, attention in enumerate(attentions):
        np.testing.assert_allclose(record.received[layer, :, 0], attention[0, :, -1], atol=SHALLOW)
        if "all" in queries:
            np.testing.assert_allclose(record.received[layer, :, 1], attention[0].mean(1), atol=SHALLOW)


def test_hiding_in_one_layer_leaves_the_layers_before_it_alone(lens: Lens) -> None:
    plain = lens.measure_tokens(IDS, ["all"])
    edited = lens.measure_tokens(IDS, ["all"], edits=[Hide(hide=(3, 4), layers=(1,))])
    np.testing.assert_array_equal(edited.received[0], plain.received[0])
    assert (edited.received[1, :, 0, 3:5] < plain.received[1, :, 0, 3:5]).all()
    assert np.abs(edited.received[2] - plain.received[2]).max() > 100 * SHALLOW


def test_hiding_from_one_head_leaves_the_others_of_its_layer_alone(lens: Lens) -> None:
    plain = lens.measure_tokens(IDS, ["last", "all"])
    edited = lens.measure_tokens(
        IDS, ["last", "all"], edits=[Hide(hide=(3, 4), layers=(0,), heads=(2,), queries=(29,))]
    )
    assert (edited.received[0, 2, 0, 3:5] == 0).all()
    np.testing.assert_allclose(edited.received[0, [0, 1, 3]], plain.received[0, [0, 1, 3]], atol=SHALLOW)


def test_zeroed_weights_leave_the_rest_as_it_was(lens: Lens) -> None:
    plain = lens.measure_tokens(IDS, ["last", "all"], layers=[0])
    edited = lens.measure_tokens(IDS, ["last", "all"], layers=[0], edits=[Hide(hide=(3, 4), how="zero")])
    want = plain.received.values.copy()
    want[..., 3:5] = 0
    np.testing.assert_allclose(edited.received, want, atol=SHALLOW)


def test_a_query_with_nothing_left_to_see_is_refused(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match="position 0 sees no key"):
        lens.measure_tokens(IDS, edits=[Hide(hide=(0,))])


def test_an_ablated_head_adds_nothing(lens: Lens) -> None:
    """Its rows in the output projection could as well be zero."""
    edited = lens.measure_tokens(IDS, ["all"], edits=[Ablate(ablate={0: (1,)})])
    projection = lens.model.model.layers[0].self_attn.o_proj.weight
    before = projection.detach().clone()
    with torch.no_grad():
        projection[:, 8:16] = 0
    try:
        by_hand = lens.measure_tokens(IDS, ["all"])
    finally:
        with torch.no_grad():
            projection.copy_(before)
    np.testing.assert_allclose(edited.received, by_hand.received, atol=SHALLOW)


def test_a_head_ablated_to_its_mean_gives_every_token_the_same(lens: Lens) -> None:
    outputs = []
    handle = lens.model.model.layers[0].self_attn.o_proj.register_forward_pre_hook(
        lambda _module, args: outputs.append(args[0].detach().clone())
    )
    lens.measure_tokens(IDS, ["all"])
    lens.measure_tokens(IDS, ["all"], edits=[Ablate(ablate={0: (1,)}, how="mean")])
    handle.remove()
    plain, edited = outputs[-2][0], outputs[-1][0]
    torch.testing.assert_close(edited[:, 8:16], plain[:, 8:16].mean(0).expand(30, -1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(edited[:, 16:], plain[:, 16:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Ablate(ablate={0: (9,)}), "layer 0 of .* has no head 9"),
        (Ablate(ablate={99: (0,)}), "no attention to edit in layer 99"),
        (Hide(hide=(3,), heads=(9,)), "no head 9"),
        (Hide(hide=(3,), heads=(9,), how="zero"), "no head 9"),
        (Hide(hide=(3,), layers=(99,)), "no attention to edit in layer 99"),
        (Patch(patch={0: (1,)}, values={0: {1: (1.0, 2.0)}}), "8 values, 2 are given"),
        (Patch(patch={0: (9,)}, values={0: {9: np.ones(8)}}), "layer 0 of .* has no head 9"),
        (Patch(patch={99: (0,)}, values={99: {0: np.ones(8)}}), "no attention to edit in layer 99"),
        (Patch(patch={0: (1,)}, values={0: {1: np.ones((29, 8))}}), "the values are of 29 tokens, the prompt has 30"),
        (Patch(patch={0: (1,)}, values={0: {1: np.ones((1, 8))}}), "the values are of 1 tokens, the prompt has 30"),
        (Patch(patch={0: (1,)}, values={0: {1: np.ones(8)}}, align=[0] * 31), "alignment is of 31 tokens"),
        (Hide(hide=(40,)), "no token 40"),
    ],
)
def test_edits_of_what_does_not_exist_are_refused(lens: Lens, edit: Any, words: str) -> None:
    for layers in (None, [0, 1]):
        with pytest.raises(AttnscopeError, match=words):
            lens.measure_tokens(IDS, ["all"], layers=layers, edits=[edit])


def test_a_third_partys_edit_changes_weights_and_what_follows_from_them(lens: Lens) -> None:
    plain = lens.measure_tokens(IDS, ["last", "all"])
    edited = lens.measure_tokens(IDS, ["last", "all"], edits=[Sharpen(sharpen=2, layers=(0,))])
    squares = plain.received[0, :, 0] ** 2
    np.testing.assert_allclose(edited.received[0, :, 0], squares / squares.sum(-1, keepdims=True), atol=20 * SHALLOW)
    assert np.abs(edited.received[1] - plain.received[1]).max() > 100 * SHALLOW


def test_log_probabilities_are_the_models_own_and_follow_edits(lens: Lens) -> None:
    text, answer = "a # b", " c*"
    ids = [token.id for token in lens.tokenize(text)]
    more = lens.tokenizer(answer, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        rows = lens.model(input_ids=torch.tensor([ids + more])).logits[0].double().log_softmax(-1)
    want = [float(rows[len(ids) - 1 + place, token]) for place, token in enumerate(more)]
    np.testing.assert_allclose(lens.log_probs(text, answer), want, atol=1e-4)
    hidden = lens.log_probs(text, answer, edits=[Hide(hide="#", queries=(4, 5, 6))])
    assert np.abs(hidden - want).max() > 1e-3
    same = lens.log_probs(text, answer, edits=[Hide(hide=(2,), queries=(0, 1))])  # what they don't see anyway
    np.testing.assert_allclose(same, want, atol=1e-4)


@pytest.mark.parametrize(
    "made",
    [tf.BertForMaskedLM, tf.LlamaForTokenClassification, tf.LlamaForSequenceClassification, tf.LlamaModel],
)
def test_models_that_predict_no_next_token_give_no_log_probabilities(made: Any) -> None:
    """Not even one with as many labels as there are tokens, or one that fills gaps and has seen what follows."""
    config = tf.BertConfig(**SIZES) if made is tf.BertForMaskedLM else tf.LlamaConfig(**SIZES)
    config.num_labels = len(tiny.VOCABULARY)
    with pytest.raises(AttnscopeError, match="predicts no next token"):
        Lens(made(config).eval(), tiny.tokenizer()).log_probs("Add", " 1")


def test_a_model_outside_the_interface_refuses_what_it_can_not_do_instead_of_ignoring_it() -> None:
    edit = Ablate(ablate={0: (1,)}, how="mean")
    config = tf.FalconConfig(vocab_size=SIZES["vocab_size"], hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    lens = Lens(tf.FalconForCausalLM(config).eval(), tiny.tokenizer())
    with pytest.raises(AttnscopeError, match="only switched off"):
        lens.measure_tokens(IDS, ["last"], edits=[edit])


@pytest.mark.parametrize("how", ["renormalise", "zero"])
def test_what_a_model_outside_the_interface_shows_is_what_is_left_after_the_edit(how: Any) -> None:
    config = tf.FalconConfig(vocab_size=SIZES["vocab_size"], hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    torch.manual_seed(1)
    lens = Lens(tf.FalconForCausalLM(config).eval(), tiny.tokenizer())
    plain = lens.measure_tokens(IDS, ["last"]).received[0, :, 0]
    edited = lens.measure_tokens(IDS, ["last"], edits=[Hide(hide=(3, 7), how=how, layers=(0,))]).received[0, :, 0]
    left = plain.copy()
    left[:, [3, 7]] = 0
    want = left / left.sum(-1, keepdims=True) if how == "renormalise" else left
    np.testing.assert_allclose(edited, want, atol=SHALLOW)
