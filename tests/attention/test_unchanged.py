"""Inside a recording a model computes what it computes outside, bit for bit where gradients flow or pads stand."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import attnscope
from attnscope import AttnscopeError
from tests.attention import architectures, reference
from tests.attention.running import prompt
from tests.models import tiny as tiny_models
from tests.tolerances import LOGITS, SHALLOW

TIER = "model"  # for the time it takes

INTERFACE = ["llama", "gemma2, softcap and window", "gpt-oss, sinks and window", "gpt2", "mistral, window"]


def batch() -> dict[str, Tensor]:
    """Two prompts, one padded on the left: its last pad predicts its first token, so pads have a say in the loss."""
    ids = torch.randint(3, architectures.VOCAB, (2, 24), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    ids[0, :9] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def tiny(name: str, implementation: str) -> Any:
    made = architectures.tiny(name)
    model = type(made)._from_config(copy.deepcopy(made.config), attn_implementation=implementation).eval()
    model.load_state_dict(made.state_dict())
    return model


def computed(model: Any, *, gradients: bool) -> list[Tensor]:
    """The loss, the logits and the gradients of one step."""
    model.zero_grad()
    with torch.set_grad_enabled(gradients):
        out = model(**batch())
    if gradients:
        out.loss.backward()
    return [
        out.loss.detach(),
        out.logits.detach(),
        *(each.grad for each in model.parameters() if each.grad is not None),
    ]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    ("name", "implementation"),
    [*((name, "eager") for name in [*INTERFACE, "falcon"]), ("llama", "sdpa"), ("gpt2", "sdpa"), ("qwen2", "sdpa")],
)
@pytest.mark.parametrize("queries", [["last"], ["last", "all"]])
def test_loss_and_gradients_beside_pads_are_the_same(
    name: str, implementation: str, gradients: bool, queries: list[str]
) -> None:
    model = tiny(name, implementation)
    before = computed(model, gradients=gradients)
    with attnscope.record(model, queries=queries) as record:
        inside = computed(model, gradients=gradients)
    assert len(before) == len(inside)
    assert all(torch.equal(one, two) for one, two in zip(before, inside, strict=True))
    given = batch()
    attentions = reference.eager(model, {key: given[key] for key in ("input_ids", "attention_mask")}).attentions
    for layer, weights in enumerate(attentions):
        got = record.received[0].at(layer=layer, queries="last").values
        np.testing.assert_allclose(got, weights[:, :, -1], atol=SHALLOW)


def test_pads_of_a_model_that_can_only_be_read_in_eager_mode_are_refused_where_they_would_change() -> None:
    model, given = tiny("falcon", "sdpa"), batch()
    refused = pytest.raises(AttnscopeError, match=r"computes something else while it is recorded.*='eager'")
    with refused, attnscope.record(model):
        model(**given)
    with attnscope.record(model) as record:  # nobody looks at the rows of pads here
        model.generate(
            given["input_ids"],
            attention_mask=given["attention_mask"],
            max_new_tokens=2,
            pad_token_id=0,
            eos_token_id=None,
        )
    assert len(record) == 2


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_checkpointed_layers_may_be_run_again_after_the_recording(implementation: str, reentrant: bool) -> None:
    model = tiny("llama", implementation).train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    loss, _, *gradients = computed(model, gradients=True)
    model.zero_grad()
    with attnscope.record(model) as record:
        inside = model(**batch()).loss
    inside.backward()
    assert len(record) == 1
    assert torch.equal(inside.detach(), loss)
    assert all(
        torch.equal(one, each.grad)
        for one, each in zip(gradients, (each for each in model.parameters() if each.grad is not None), strict=True)
    )


def test_a_model_that_shares_the_config_is_left_alone() -> None:
    recorded = tiny("llama", "eager")
    other = type(recorded)(recorded.config).eval()
    assert other.config is recorded.config
    ids = batch()["input_ids"]
    before = other(ids, output_attentions=True)
    with attnscope.record(recorded) as record:
        recorded(ids)
        inside = other(ids, output_attentions=True)
    assert len(record) == 1
    assert torch.equal(before.logits, inside.logits)
    assert all(torch.equal(one, two) for one, two in zip(before.attentions, inside.attentions, strict=True))


@pytest.fixture
def unmasked() -> Iterator[str]:
    """An attention function of somebody's own: transformers makes no mask for it, so it looks at pads."""
    table = tf.AttentionInterface._global_mapping
    table["unmasked"] = sdpa_attention_forward
    yield "unmasked"
    del table["unmasked"]


def test_attention_of_ones_own_that_looks_at_pads_is_recorded_without_pads_and_refused_with_them(unmasked: str) -> None:
    model, given = tiny("llama", unmasked), batch()
    with attnscope.record(model) as record:
        model(given["input_ids"][1:])
    weights = reference.eager(tiny("llama", "eager"), {"input_ids": given["input_ids"][1:]}).attentions[0]
    np.testing.assert_allclose(record.received[0].at(layer=0, queries="last").values, weights[:, :, -1], atol=SHALLOW)
    refused = pytest.raises(AttnscopeError, match="something else with its own attention implementation, 'unmasked'")
    with refused, attnscope.record(model):
        model(given["input_ids"], attention_mask=given["attention_mask"])


def windowed(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any) -> Any:
    """Attention that lets no query see more than 70 keys back, which no probe is long enough to show."""
    rows, keys = query.shape[2], key.shape[2]
    back = torch.arange(keys - rows, keys)[:, None] - torch.arange(keys)
    seen = (back >= 0) & (back < 70)
    key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
    output = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling)
    return output.transpose(1, 2).contiguous(), None


FORMS: dict[str, Any] = {
    "own name": windowed,
    "own name, partial": partial(windowed),
    "sdpa for all": windowed,
    "sdpa of this instance": windowed,
    "sdpa of this instance, partial": partial(windowed),
    "sdpa of this instance, wrapped": wraps(sdpa_attention_forward)(windowed),
}


@pytest.mark.parametrize("replaced", FORMS)
def test_a_registered_function_that_shows_its_window_on_long_prompts_only_is_refused_there(
    replaced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "windowed" if "own name" in replaced else "sdpa"
    table = ALL_ATTENTION_FUNCTIONS._local_mapping if "instance" in replaced else tf.AttentionInterface._global_mapping
    monkeypatch.setitem(table, name, FORMS[replaced])
    model = tf.LlamaForCausalLM._from_config(tiny_models.llama_config(), attn_implementation=name).eval()
    lens = attnscope.Lens(model, tiny_models.tokenizer())
    short, long = prompt(1, 60), prompt(1, 120)
    with torch.no_grad():
        plain = model(short).logits
        with attnscope.record(model) as record:
            assert torch.equal(model(short).logits, plain)
        weights = reference.eager(model, {"input_ids": short}).attentions[0]
        np.testing.assert_allclose(
            record.received[0].at(layer=0, queries="last").values, weights[:, :, -1], atol=SHALLOW
        )
        lens.measure_tokens(short[0].tolist())
        with pytest.raises(AttnscopeError, match=r"computes something else"), attnscope.record(model):
            model(long)
        with pytest.raises(AttnscopeError, match=r"something else|can't be read exactly"):
            lens.measure_tokens(long[0].tolist())


def flat(module: Any, *given: Any, **more: Any) -> Any:
    output, weights = sdpa_attention_forward(module, *given, **more)
    return output.flatten(2), weights  # models reshape it anyway


def by_hand(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **more: Any) -> Any:
    key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
    hidden = torch.ones(query.shape[2], key.shape[2]).triu(1 + key.shape[2] - query.shape[2]).bool()
    weights = (query @ key.transpose(2, 3) * scaling).masked_fill(hidden, float("-inf")).softmax(-1)
    dropped = nn.functional.dropout(weights, more.get("dropout", 0.0), module.training)
    return (dropped @ value).transpose(1, 2).contiguous(), None


@pytest.mark.parametrize("case", ["flat", "autocast", "dropout", "dropout, long"])
def test_registered_functions_may_reshape_cast_and_drop(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tf.AttentionInterface._global_mapping, "mine", flat if case == "flat" else by_hand)
    config = tiny_models.llama_config(attention_dropout=0.5 if "dropout" in case else 0.0)
    model = tf.LlamaForCausalLM._from_config(config, attn_implementation="mine").train("dropout" in case)
    ids, autocast = prompt(1, 80 if "long" in case else 30), torch.autocast("cpu", torch.bfloat16)
    if "long" in case:
        with pytest.raises(AttnscopeError, match="while it drops weights"), attnscope.record(model):
            model(ids)
        return
    with attnscope.record(model) as record, autocast if case == "autocast" else nullcontext():
        model(ids)
    want = reference.eager(model, {"input_ids": ids}).attentions[0][:, :, -1]
    limit = 5e-3 if case == "autocast" else SHALLOW
    np.testing.assert_allclose(record.received[0].at(layer=0, queries="last").values, want, atol=limit)


def test_a_registered_function_goes_on_being_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def counting(module: Any, *given: Any, **more: Any) -> Any:
        called.append(module.layer_idx)
        return sdpa_attention_forward(module, *given, **more)

    monkeypatch.setitem(tf.AttentionInterface._global_mapping, "counting", counting)
    model, ids = tiny("llama", "counting"), prompt(1, 40)
    with attnscope.record(model) as record, torch.no_grad():
        called.clear()
        model(ids)
    assert called == [0, 1, 2]
    weights = reference.eager(tiny("llama", "eager"), {"input_ids": ids}).attentions[1]
    np.testing.assert_allclose(record.received[0].at(layer=1, queries="last").values, weights[:, :, -1], atol=SHALLOW)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_model_in_float64_is_recorded(implementation: str) -> None:
    model, ids = tiny("llama", implementation).double(), batch()["input_ids"][1:]
    with attnscope.record(model, queries=["all"]) as record:
        model(ids)
    for layer, weights in enumerate(reference.eager(model, {"input_ids": ids}).attentions):
        np.testing.assert_allclose(record.received[0].at(layer=layer, queries="all").values, weights.mean(2), atol=1e-7)


def loss_and_gradients(model: Any, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.detach(), [each.grad.clone() for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("queries", [["last"], ["all"]])
@pytest.mark.parametrize("name", ["llama", "gemma2, softcap and window", "gpt-oss, sinks and window", "falcon"])
def test_a_training_step_has_the_same_loss_and_gradients(name: str, queries: list[str]) -> None:
    model, ids = architectures.tiny(name), prompt(2, 14)
    plain, gradients = loss_and_gradients(model, ids)
    with attnscope.record(model, queries=queries) as record:
        recorded, same = loss_and_gradients(model, ids)
    attentions = reference.eager(model, {"input_ids": ids}).attentions
    torch.testing.assert_close(recorded, plain, atol=LOGITS, rtol=LOGITS)
    assert len(same) == len(gradients) > 0
    for one, two in zip(gradients, same, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-3)
    want = [each.mean(2) if queries == ["all"] else each[:, :, -1] for each in attentions]
    for layer in range(3):
        np.testing.assert_allclose(record.received[0].values[:, layer, :, 0], want[layer].detach(), atol=SHALLOW)


@pytest.mark.parametrize(
    ("implementation", "queries"), [("sdpa", ["last"]), ("eager", ["last"]), ("eager", ["last", "all"])]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_the_model_computes_is_bit_for_bit_what_it_was(
    implementation: str, queries: list[str], dtype: torch.dtype
) -> None:
    model, ids = tiny("llama", implementation).to(dtype), prompt()
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        with attnscope.record(model, queries=queries):
            recorded = model(input_ids=ids).logits
    assert torch.equal(plain, recorded)


@pytest.mark.parametrize(("name", "implementation"), [("llama", "sdpa"), ("llama", "eager"), ("gpt2", "eager")])
def test_dropout_is_drawn_once_however_many_record(name: str, implementation: str) -> None:
    model = tiny(name, implementation).train()
    for each in model.modules():
        for key in ("attention_dropout", "attn_dropout"):
            if isinstance(getattr(each, key, None), float):
                setattr(each, key, 0.3)
    torch.manual_seed(5)
    plain, after = model(**batch()).loss, torch.rand(1)
    torch.manual_seed(5)
    with attnscope.record(model), attnscope.record(model, queries=["all"]):
        inside = model(**batch()).loss
    assert torch.equal(plain, inside)
    assert torch.equal(after, torch.rand(1))


def test_a_hook_of_ones_own_still_gets_the_weights_of_eager_attention() -> None:
    model, shapes = tiny("llama", "eager"), []
    with attnscope.record(model, layers=[0]):
        handle = model.model.layers[1].self_attn.register_forward_hook(lambda _m, _i, out: shapes.append(out[1].shape))
        model(prompt(1, 8))
        handle.remove()
    assert shapes == [(1, 4, 8, 8)]


@pytest.mark.parametrize("name", ["llama", "falcon", "mpt"])
def test_a_copy_made_inside_is_a_model_of_its_own(name: str) -> None:
    model, ids = architectures.tiny(name), prompt(1, 9)
    with attnscope.record(model) as record:
        model(ids)
        copied = copy.deepcopy(model)
        inside = copied(ids).logits
    assert len(record) == 1
    torch.testing.assert_close(copied(ids).logits, inside, atol=LOGITS, rtol=LOGITS)
    with attnscope.record(copied) as again:
        copied(ids)
    np.testing.assert_allclose(again.received[0].values, record.received[0].values, atol=SHALLOW)
