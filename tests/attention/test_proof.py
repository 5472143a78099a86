"""What would give a wrong number in silence is read correctly or refused by name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from accelerate import cpu_offload, dispatch_model

import attnscope
from attnscope import AttnscopeError, Lens
from attnscope.attention.backends.blocked import Blocked
from attnscope.attention.interface import implementation, quiet
from attnscope.measures import MEASURES, Measure
from tests.attention import reference
from tests.attention.architectures import COMMON, GROUPED
from tests.attention.running import hooks
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
    model.set_attn_implementation("eager")  # transformers' sdpa function drops the window
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


LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "rope_theta": 10000.0}


@pytest.mark.parametrize("way", ["lens", "record"])
def test_positions_for_long_prompts_are_not_left_on_the_model(way: str) -> None:
    """The model writes to its buffers in place once a prompt is long; ours, and the probe, must not leave that."""
    rope = {**LONGROPE, "original_max_position_embeddings": 32, "factor": 4.0}
    model, ids = llama(max_position_embeddings=256, rope_parameters=rope), some_ids(100)
    before, twin = {name: each.clone() for name, each in model.named_buffers()}, copy.deepcopy(model)
    twin.set_attn_implementation("eager")
    with torch.no_grad():
        want = [each[0, :, -1].numpy() for each in twin(torch.tensor([ids[:20]]), output_attentions=True).attentions]
    if way == "lens":
        lens = lens_on(model)
        lens.measure_tokens(ids, beyond_context=True)
        found = lens.measure_tokens(ids[:20]).received[:, :, 0]
    else:
        with attnscope.record(model) as record, torch.no_grad():
            model(torch.tensor([ids[:20]]))
        found = record.received[0][0, :, :, 0]
    for layer, row in enumerate(want):
        np.testing.assert_allclose(found[layer], row, atol=SHALLOW)
    assert all(torch.equal(each, before[name]) for name, each in model.named_buffers())


def test_a_model_that_only_runs_under_eager_attention_is_read_by_its_own_weights() -> None:
    size: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 128, "expansion_ratio": 2}
    model = tf.MptForCausalLM(tf.MptConfig(vocab_size=len(tiny.VOCABULARY), **size)).eval()
    ids = some_ids(30)
    record = lens_on(model).measure_tokens(ids)
    for layer, row in enumerate(eager_last(model, ids)):
        np.testing.assert_allclose(record.received[layer, :, 0], row, atol=SHALLOW)
    assert record.evidence["check"]["way"] == "eager, one layer at a time"


def test_a_model_that_returns_tuples_is_read() -> None:
    model, ids = llama(return_dict=False), some_ids(30)
    found = lens_on(model).measure_tokens(ids).received[:, :, 0]
    for layer, row in enumerate(eager_last(llama(), ids)):
        np.testing.assert_allclose(found[layer], row, atol=SHALLOW)


@pytest.mark.parametrize("offloaded", ["all", "embeddings"])
def test_weights_that_accelerate_keeps_elsewhere_are_read(offloaded: str, tmp_path: Path) -> None:
    model, ids = llama(), some_ids(30)
    want = eager_last(model, ids)
    if offloaded == "all":
        cpu_offload(model, execution_device="cpu")
    else:
        parts = [*(f"model.layers.{number}" for number in range(3)), "model.norm", "model.rotary_emb", "lm_head"]
        places = {"model.embed_tokens": "disk", **dict.fromkeys(parts, "cpu")}
        dispatch_model(model, device_map=places, main_device="cpu", offload_dir=tmp_path)
    found = lens_on(model).measure_tokens(ids).received[:, :, 0]
    with attnscope.record(model) as record, torch.no_grad():
        model(torch.tensor([ids]))
    for layer, row in enumerate(want):
        np.testing.assert_allclose(found[layer], row, atol=SHALLOW)
        np.testing.assert_allclose(record.received[0][0, layer, :, 0], row, atol=SHALLOW)


def test_a_model_that_shows_its_weights_by_default_keeps_no_hook_of_ours() -> None:
    model = llama(output_attentions=True)
    model.set_attn_implementation("eager")
    lens_on(model).measure_tokens(some_ids(30))
    assert hooks(model) == 0


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


def test_a_model_that_runs_another_attention_than_eager_is_refused(window_without_a_mask: Any) -> None:
    """What counts is the model as it runs: here its own attention function drops the window."""
    window_without_a_mask.set_attn_implementation("sdpa")
    lens = lens_on(window_without_a_mask)
    lens.measure_tokens(some_ids(60))  # here the window changes nothing
    with pytest.raises(AttnscopeError, match="its own attention implementation, 'sdpa'"):
        lens.measure_tokens(some_ids(300))


def test_a_registered_attention_function_of_another_scale_is_refused() -> None:
    def hot(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float = 1.0, **more: Any) -> Any:
        return tf.AttentionInterface._global_mapping["sdpa"](
            module, query, key, value, mask, scaling=0.1 * scaling, **more
        )

    masks: Any = tf.AttentionMaskInterface
    tf.AttentionInterface.register("hot", hot)
    masks.register("hot", masks._global_mapping["sdpa"])
    try:
        model = llama()
        model.set_attn_implementation("hot")
        with pytest.raises(AttnscopeError, match="'hot'"):
            lens_on(model).measure_tokens(some_ids(40))
        with pytest.raises(AttnscopeError, match="'hot'"), attnscope.record(model, layers=[0]):
            pass
    finally:
        for table in (tf.AttentionInterface, tf.AttentionMaskInterface):
            del table._global_mapping["hot"]


def test_alibi_that_differs_between_implementations_is_refused_until_the_model_runs_eagerly() -> None:
    config = tf.FalconConfig(
        vocab_size=SIZES["vocab_size"], hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True
    )
    model = sharp(tf.FalconForCausalLM(config))
    with torch.no_grad():
        ids = torch.tensor([some_ids(30)])
        own = model(ids).logits
        with implementation(model, "eager"):
            apart = float((model(ids).logits - own).abs().max())
    if apart < 1e-3:
        pytest.fail("the two implementations agree now; this refusal is not needed any more")
    with pytest.raises(AttnscopeError, match="its own attention implementation"):
        lens_on(model).measure_tokens(some_ids(30))
    eager = tf.FalconForCausalLM._from_config(config, attn_implementation="eager")
    lens_on(sharp(eager)).measure_tokens(some_ids(30))


def test_a_model_that_looks_across_the_batch_is_measured_one_prompt_at_a_time() -> None:
    model = llama()

    def leak(_module: Any, args: Any, kwargs: Any) -> Any:
        hidden = args[0] if args else kwargs["hidden_states"]
        mixed = hidden + hidden.mean(0, keepdim=True) * (hidden.shape[0] > 1)
        return ((mixed, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": mixed})

    for layer in model.model.layers:
        layer.register_forward_pre_hook(leak, with_kwargs=True)
    lens = lens_on(model)
    texts = ["a # b * c # d", "d * c # b # a"]
    alone = [lens.measure(text, queries="all").received.values for text in texts]
    together = [record.received.values for record in lens.measure_batch(texts, queries="all")]
    for one, two in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, two, atol=SHALLOW)


def _mixing(mix: Any) -> Any:
    """A measure that is right within one block of rows and wrong across blocks."""
    return Measure(name="mixing", meaning="Of no use.", unit="", block=mix[0], reference=mix[1])


def _change_since_the_row_before(weights: Any, _q: Any, _k: Any) -> Any:
    before = torch.cat([torch.zeros_like(weights[:, :1]), weights[:, :-1]], 1)
    return (weights - before).abs().sum(-1)


def _the_same_of_the_matrix(matrix: Any) -> Any:
    return _change_since_the_row_before(matrix, None, None)


MIXED = {
    "rows": (_change_since_the_row_before, _the_same_of_the_matrix),
    "width": (
        lambda weights, _q, _k: weights.new_full(weights.shape[:2], float(weights.shape[-1])),
        lambda matrix: matrix.new_full(matrix.shape[:2], float(matrix.shape[-1])),
    ),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
def test_a_measure_that_depends_on_how_rows_are_cut_into_blocks_is_refused(
    mix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURES.members, "mixing", _mixing(mix))
    with pytest.raises(AttnscopeError, match="measure 'mixing'"):
        lens_on(llama()).measure_tokens(some_ids(60), queries="all", measures=["mixing"])


def test_attention_that_does_not_add_up_on_a_longer_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = Blocked.attend

    def halved(self: Any, call: Any, view: Any, ask: Any) -> Any:
        result = attend(self, call, view, ask)
        factor = 0.5 if call.keys > 100 else 1.0
        return replace(result, values={name: each * factor for name, each in result.values.items()})

    monkeypatch.setattr(Blocked, "attend", halved)
    lens = lens_on(llama())
    lens.measure_tokens(some_ids(60), queries="all")
    with pytest.raises(AttnscopeError, match="does not add up to 1"):
        lens.measure_tokens(some_ids(300), queries="all")


def test_a_model_that_switches_its_attention_on_short_texts_is_left_as_it_was() -> None:
    config = tf.BigBirdConfig(**{**COMMON, "vocab_size": SIZES["vocab_size"], "block_size": 8, "num_random_blocks": 1})
    model = tf.BigBirdModel(config).eval()
    kinds = [type(layer.attention.self).__name__ for layer in model.encoder.layer]
    with pytest.raises(AttnscopeError):
        lens_on(model).measure_tokens(some_ids(40))
    assert model.attention_type == "block_sparse"
    assert [type(layer.attention.self).__name__ for layer in model.encoder.layer] == kinds
