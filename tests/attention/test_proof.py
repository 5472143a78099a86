"""What would give a wrong number in silence is read correctly or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from attnscope import AttnscopeError, Lens
from attnscope.attention.interface import implementation, quiet
from tests.attention import reference
from tests.attention.architectures import GROUPED
from tests.models import tiny
from tests.tolerances import SHALLOW

modeling_llama: Any = import_module("transformers.models.llama.modeling_llama")
modeling_mistral: Any = import_module("transformers.models.mistral.modeling_mistral")

SIZES: dict[str, Any] = {**GROUPED, "vocab_size": len(tiny.VOCABULARY), "max_position_embeddings": 2048}


def sharp(model: Any) -> Any:
    """Weights large enough for attention to be far from even."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model.eval()


def llama(**more: Any) -> Any:
    return sharp(tf.LlamaForCausalLM(tf.LlamaConfig(**{**SIZES, **more})))


def lens_on(model: Any) -> Lens:
    return Lens(model, tiny.tokenizer(), name="constructed")


def some_ids(count: int) -> list[int]:
    return torch.randint(3, SIZES["vocab_size"], (count,), generator=torch.Generator().manual_seed(1)).tolist()


def eager_last(model: Any, ids: list[int]) -> list[Any]:
    return [each[0, :, -1].numpy() for each in reference.eager(model, {"input_ids": torch.tensor([ids])}).attentions]


@pytest.fixture
def window_without_a_mask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model that leaves its window to the attention function, as it would for flash attention."""
    model = sharp(tf.MistralForCausalLM(tf.MistralConfig(**SIZES, sliding_window=100)))
    build = modeling_mistral.create_sliding_window_causal_mask

    def mask(config: Any, **given: Any) -> Any:
        return build(config=config, **given) if config._attn_implementation == "eager" else None

    monkeypatch.setattr(modeling_mistral, "create_sliding_window_causal_mask", mask)
    return model


@pytest.mark.parametrize("queries", [["last"], ["last", "all"]])
def test_a_window_that_no_mask_shows_is_kept(window_without_a_mask: Any, queries: list[str]) -> None:
    ids = some_ids(1000)
    record = lens_on(window_without_a_mask).measure_tokens(ids, queries)
    for layer, row in enumerate(eager_last(window_without_a_mask, ids)):
        np.testing.assert_allclose(record.received[layer, :, 0], row, atol=SHALLOW)
    assert record.evidence["check"]["tokens"] > 100, "the probe has to be longer than the window"


def test_a_window_that_eager_attention_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp(tf.MistralForCausalLM(tf.MistralConfig(**SIZES, sliding_window=100)))
    causal = modeling_mistral.create_causal_mask
    monkeypatch.setattr(modeling_mistral, "create_sliding_window_causal_mask", causal)
    lens = lens_on(model)
    lens.measure_tokens(some_ids(60))  # here the window changes nothing
    with pytest.raises(AttnscopeError, match="differ by"):
        lens.measure_tokens(some_ids(300))


@pytest.fixture
def rewritten_mask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A model that uses one mask for all layers and hides one more key in it before each of them."""
    model = llama()

    def mask(config: Any, inputs_embeds: Any, **given: Any) -> Any:
        count = inputs_embeds.shape[1]
        seen = torch.ones(count, count, dtype=torch.bool).tril()[None, None].clone()
        if config._attn_implementation == "eager":
            return torch.zeros(1, 1, count, count, dtype=inputs_embeds.dtype).masked_fill(~seen, -1e9)
        return seen

    monkeypatch.setattr(modeling_llama, "create_causal_mask", mask)

    def hide(module: Any, _args: Any, given: dict[str, Any]) -> None:
        seen, layer = given["attention_mask"], module.self_attn.layer_idx
        seen[..., 8:, layer] = False if seen.dtype == torch.bool else -1e9

    handles = [each.register_forward_pre_hook(hide, with_kwargs=True) for each in model.model.layers]
    yield model
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("queries", [["last"], ["last", "all"]])
def test_a_mask_that_is_rewritten_between_layers_is_read_anew(rewritten_mask: Any, queries: list[str]) -> None:
    ids = some_ids(90)
    record = lens_on(rewritten_mask).measure_tokens(ids, queries)
    for layer, row in enumerate(eager_last(rewritten_mask, ids)):
        np.testing.assert_allclose(record.received[layer, :, 0], row, atol=SHALLOW)
        assert (record.received[layer, :, 0, : layer + 1] == 0).all()


def test_positions_scaled_by_the_longest_prompt_so_far_are_reset_and_left_as_they_were() -> None:
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    model = llama(max_position_embeddings=256, rope_parameters=rope)
    lens, ids = lens_on(model), some_ids(900)
    before = lens.measure_tokens(ids[:600], beyond_context=True).received.values
    lens.measure_tokens(ids, beyond_context=True)
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))  # the user's own, longer forward
    state = {name: each.clone() for name, each in model.named_buffers()}
    after = lens.measure_tokens(ids[:600], beyond_context=True).received.values
    np.testing.assert_allclose(after, before, atol=SHALLOW)
    assert all(torch.equal(each, state[name]) for name, each in model.named_buffers())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_softcap_that_nobody_mentions_is_refused(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama().to(dtype)

    def capped(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **given: Any) -> Any:
        keys = key.repeat_interleave(module.num_key_value_groups, 1)
        scores = torch.tanh(query @ keys.transpose(2, 3) * scaling / 5) * 5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        values = value.repeat_interleave(module.num_key_value_groups, 1)
        return (weights @ values).transpose(1, 2).contiguous(), weights

    lens_on(model).measure_tokens(some_ids(40))
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", capped)
    with pytest.raises(AttnscopeError, match=r"differ by .*layer 0"):
        lens_on(model).measure_tokens(some_ids(40))


def test_a_query_that_sees_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()

    def mask(config: Any, inputs_embeds: Any, **given: Any) -> Any:
        count = inputs_embeds.shape[1]
        seen = torch.ones(count, count, dtype=torch.bool).tril()
        seen[min(count - 1, 70)] = count < 71  # in prompts longer than the probe, the query at 70 sees nothing
        seen = seen[None, None]
        if config._attn_implementation == "eager":
            return torch.zeros(seen.shape, dtype=inputs_embeds.dtype).masked_fill(~seen, torch.finfo().min)
        return seen

    monkeypatch.setattr(modeling_llama, "create_causal_mask", mask)
    lens = lens_on(model)
    with pytest.raises(AttnscopeError, match="position 70 sees no key"):
        lens.measure_tokens(some_ids(90), ["all"])
    lens.measure_tokens(some_ids(90), ["last"])


def test_a_nan_in_the_weights_is_refused_with_its_layer_and_head() -> None:
    model = llama()
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[8, 3] = float("nan")  # head 1 has rows 8 to 15
    with pytest.raises(AttnscopeError, match=r"not finite \(layer 1, head 1\)"):
        lens_on(model).measure_tokens(some_ids(40))


def test_a_nan_that_only_this_prompt_meets_is_refused() -> None:
    model = llama()
    lens = lens_on(model)
    probe = {token.id for token in lens.tokenize("The town lies on both sides of a river.")}
    unused = next(number for number in range(SIZES["vocab_size"] - 1, 0, -1) if number not in probe)
    lens.measure_tokens([number for number in some_ids(40) if number != unused])
    with torch.no_grad():
        model.model.embed_tokens.weight[unused] = float("nan")
    fresh = lens_on(model)
    with pytest.raises(AttnscopeError, match="not finite"):
        fresh.measure_tokens([5, 6, unused, 7, 8])


@pytest.mark.parametrize(("queries", "backend"), [(["last"], "rows"), (["all"], "blocked")])
def test_the_path_a_reading_takes_is_the_path_that_was_proven(
    queries: list[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnscope.attention.backends.blocked import Blocked

    lens, right = lens_on(llama()), Blocked.attend

    def wrong(self: Any, call: Any, view: Any, ask: Any) -> Any:
        result = right(self, call, view, ask)
        few = len(ask.rows) < call.queries
        if few == (backend == "rows"):
            result.values["received"] = result.values["received"] * 1.0001
        return result

    assert set(lens.measure_tokens(some_ids(64), queries).evidence["backends"].values()) == {backend}
    monkeypatch.setattr(Blocked, "attend", wrong)
    with pytest.raises(AttnscopeError, match="differ by"):
        lens_on(lens.model).measure_tokens(some_ids(64), queries)


def test_layers_that_were_not_asked_for_are_part_of_the_proof() -> None:
    model = llama()
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight[0, 0] = float("nan")
    with pytest.raises(AttnscopeError, match="not finite"):
        lens_on(model).measure_tokens(some_ids(40), layers=[2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_model_is_proven_in_float32_and_left_as_it_was(dtype: torch.dtype) -> None:
    model = llama().to(dtype)
    before = {name: (id(each), each.data_ptr()) for name, each in model.named_parameters()}
    check = lens_on(model).measure_tokens(some_ids(40)).evidence["check"]
    assert check["dtype"] == "float32"
    assert check["limit"] < 1e-4
    assert {name: (id(each), each.data_ptr()) for name, each in model.named_parameters()} == before
    assert model.dtype == dtype


def test_the_limit_follows_eagers_own_rounding() -> None:
    model, ids = llama(), some_ids(60)
    check = lens_on(model).measure_tokens(ids, ["all"]).evidence["check"]
    assert check["difference"] <= check["limit"]
    assert check["limit"] == pytest.approx(max(2e-6, 8 * check["rounding"]))


def test_the_proof_itself_is_what_eager_attention_gives() -> None:
    model = llama()
    lens = lens_on(model)
    with quiet(model), implementation(model, "eager"):
        attentions = model(input_ids=torch.tensor([some_ids(50)]), output_attentions=True).attentions
    record = lens.measure_tokens(some_ids(50), ["all"])
    for layer, attention in enumerate(attentions):
        np.testing.assert_allclose(record.received[layer, :, 0], attention[0].mean(1), atol=SHALLOW)


def test_a_lens_needs_a_transformers_model_and_a_fast_tokenizer() -> None:
    with pytest.raises(AttnscopeError, match=r"a Linear can't be read.*transformers model"):
        Lens(torch.nn.Linear(2, 2), tiny.tokenizer())
    with pytest.raises(AttnscopeError, match="AutoTokenizer"):
        Lens(llama(), None)
