"""Recording somebody else's code: exact at every step, and nothing stays behind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from peft import LoraConfig, get_peft_model
from torch import nn

import attnscope
from attnscope import AttnscopeError
from tests.attention import architectures, reference
from tests.attention.running import NEW, PROMPT, hooks, prompt, written
from tests.models import tiny
from tests.tolerances import LOGITS, SHALLOW

NAMES = [
    "llama",
    "qwen2",
    "gemma3 inside a multimodal model",
    "gemma2, softcap and window",
    "gpt-oss, sinks and window",
    "mistral, window",
    "gpt2",
    "opt",
    "falcon",
    "gpt-neo, window",
]


def state(model: nn.Module) -> Any:
    kinds = {
        name: getattr(getattr(each, "config", None), "_attn_implementation", None)
        for name, each in model.named_modules()
    }
    table = tf.AttentionInterface._global_mapping["sdpa"], tf.AttentionInterface.get_interface
    return kinds, hooks(model), table, model.training


@pytest.mark.parametrize("queries", [["last"], ["last", "all"]])
@pytest.mark.parametrize("name", NAMES)
def test_every_step_of_generate_is_what_eager_attention_gives_that_row(name: str, queries: list[str]) -> None:
    model = architectures.tiny(name)
    before, ids = state(model), prompt()
    with attnscope.record(model, queries=queries) as record:
        whole = written(model, ids)
    assert state(model) == before
    assert [step.queries for step in record.steps] == [PROMPT] + [1] * (NEW - 1)
    assert [step.keys for step in record.steps] == list(range(PROMPT, PROMPT + NEW))
    attentions = reference.eager(model, {"input_ids": whole}).attentions
    for number, received in enumerate(record.received):
        row = PROMPT - 1 + number
        for layer in range(3):
            got = received.at(prompt=0, layer=layer, queries="last").values
            np.testing.assert_allclose(got, attentions[layer][0, :, row, : row + 1], atol=SHALLOW)
    if "all" in queries:
        got = record.received[0].at(prompt=0, queries="all").values
        for layer in range(3):
            np.testing.assert_allclose(got[layer], attentions[layer][0, :, :PROMPT, :PROMPT].mean(1), atol=SHALLOW)


@pytest.mark.parametrize("name", ["llama", "gemma2, softcap and window", "falcon"])
def test_prompts_of_different_lengths_are_recorded_as_alone(name: str) -> None:
    model = architectures.tiny(name)
    short, long = prompt(1, 11, seed=4), prompt(1, 20, seed=5)
    ids = torch.cat([torch.cat([torch.zeros(1, 9, dtype=torch.int64), short], 1), long])
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    with attnscope.record(model, queries=["last", "all"]) as together:
        written(model, ids, attention_mask=mask)
    with attnscope.record(model, queries=["last", "all"]) as alone:
        written(model, short)
    for one, two in zip(together.received, alone.received, strict=True):
        np.testing.assert_allclose(one.at(prompt=0).values[..., 9:], two.at(prompt=0).values, atol=SHALLOW)
        assert (one.at(prompt=0).values[..., :9] == 0).all()


def test_a_static_cache_records_the_tokens_that_are_there_and_their_distances() -> None:
    model, ids = architectures.tiny("llama"), prompt()
    with attnscope.record(model, measures=["distance"]) as dynamic:
        written(model, ids)
    with attnscope.record(model, measures=["distance"]) as static:
        written(model, ids, cache_implementation="static")
    for one, two in zip(dynamic.steps, static.steps, strict=True):
        np.testing.assert_allclose(one.received.values, two.received.values, atol=SHALLOW)
        np.testing.assert_allclose(one["distance"].values, two["distance"].values, atol=100 * SHALLOW)


def test_recordings_nest_and_a_lens_inside_one_is_not_heard() -> None:

    model = tf.LlamaForCausalLM(tiny.llama_config()).eval()
    ids = torch.randint(3, 200, (1, 12), generator=torch.Generator().manual_seed(0))
    lens = attnscope.Lens(model, tiny.tokenizer())
    with attnscope.record(model, queries=["last"], layers=[0]) as outer:
        model(input_ids=ids)
        with attnscope.record(model, queries=["all"], layers=[1]) as inner:
            model(input_ids=ids)
        lens.measure("a # b")
        model(input_ids=ids)
    assert (len(outer), len(inner)) == (3, 1)
    np.testing.assert_array_equal(outer.received[0].values, outer.received[1].values)
    attentions = reference.eager(model, {"input_ids": ids}).attentions
    np.testing.assert_allclose(inner.received[0].values[0, 0, :, 0], attentions[1][0].mean(1), atol=SHALLOW)


def test_an_exception_ends_the_recording_and_leaves_the_model_as_it_was() -> None:
    model = architectures.tiny("llama")
    before = state(model)
    recordings = []

    def fail() -> None:
        with attnscope.record(model) as record:
            recordings.append(record)
            model(input_ids=prompt())
            model(input_ids=torch.tensor([[10**6]]))

    with pytest.raises(IndexError):
        fail()
    assert state(model) == before
    assert len(recordings[0]) == 1
    with attnscope.record(model) as again:
        model(input_ids=prompt())
    assert len(again) == 1


def test_a_caught_failure_inside_does_not_spoil_the_next_step() -> None:
    model = architectures.tiny("llama")
    with attnscope.record(model) as record:
        with pytest.raises(IndexError):
            model(input_ids=torch.tensor([[10**6]]))
        model(input_ids=prompt())
    assert [step.keys for step in record.steps] == [PROMPT]


def test_a_model_wrapped_by_peft_is_recorded_and_measured_with_its_adapter() -> None:

    torch.manual_seed(0)
    base = tf.LlamaForCausalLM(tiny.llama_config()).eval()
    ids = torch.randint(3, 200, (1, 12), generator=torch.Generator().manual_seed(0))
    plain = reference.eager(base, {"input_ids": ids}).attentions
    settings: Any = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    wrapped: Any = get_peft_model(base, settings).eval()
    with attnscope.record(wrapped) as record:
        wrapped(input_ids=ids)
    adapted = reference.eager(wrapped.get_base_model(), {"input_ids": ids}).attentions
    record_of_lens = attnscope.Lens(wrapped, tiny.tokenizer()).measure_tokens(ids[0].tolist())
    for layer in range(2):
        np.testing.assert_allclose(record.received[0].values[0, layer, :, 0], adapted[layer][0, :, -1], atol=SHALLOW)
        np.testing.assert_allclose(record_of_lens.received[layer, :, 0], adapted[layer][0, :, -1], atol=SHALLOW)
    assert np.abs(record.received[0].values[0, 1, :, 0] - plain[1][0, :, -1].numpy()).max() > 100 * SHALLOW


def test_prompt_tuning_is_refused_for_its_tokens_are_nobodys() -> None:
    from peft import PromptTuningConfig

    settings: Any = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    wrapped: Any = get_peft_model(tf.LlamaForCausalLM(tiny.llama_config()), settings)
    with pytest.raises(AttnscopeError, match="virtual tokens"), attnscope.record(wrapped):
        pass


def test_measures_by_name_and_their_absence() -> None:
    model = architectures.tiny("llama")
    with attnscope.record(model, measures=["entropy", "top1"]) as record:
        model(input_ids=prompt())
    attention = reference.eager(model, {"input_ids": prompt()}).attentions[1][0, :, -1]
    nats = -(attention * attention.log()).sum(-1)
    np.testing.assert_allclose(record["entropy"][0].values[0, 1, :, 0], nats, atol=20 * SHALLOW)
    assert (
        record["top1"][0].at(prompt=0, layer=1, queries="last").values.argmax(-1).tolist()
        == attention.argmax(-1).tolist()
    )
    with pytest.raises(AttnscopeError, match="not asked for"):
        record["distance"]
    with pytest.raises(AttnscopeError, match="token ids"), attnscope.record(model, measures=["previous"]):
        written(model, prompt())  # a later step's ids are not the whole text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": [3]}, "layers 0 to 2"),
        ({"heads": [4]}, "heads 0 to 3"),
        ({"queries": ["lst"]}, "last, all"),
        ({"measures": ["entrpy"]}, "near: entropy"),
    ],
)
def test_what_does_not_exist_is_refused_before_anything_runs(options: dict[str, Any], words: str) -> None:
    model = architectures.tiny("llama")
    before = state(model)
    with pytest.raises(AttnscopeError, match=words), attnscope.record(model, **options):
        pass
    assert state(model) == before


def test_a_recording_in_which_nothing_ran_says_so() -> None:
    with pytest.raises(AttnscopeError, match="no forward"), attnscope.record(architectures.tiny("llama")):
        pass


def test_lookback_is_the_share_on_the_prompt() -> None:
    model = architectures.tiny("llama")
    with attnscope.record(model) as record:
        written(model, prompt())
    share = record.lookback()
    assert share.axes == ("step", "prompt", "layer", "head", "queries")
    np.testing.assert_allclose(share.at(step=0).values, 1, atol=SHALLOW)
    last = record.received[-1].values[..., :PROMPT].sum(-1)
    np.testing.assert_allclose(share.at(step=NEW - 1).values, last, atol=SHALLOW)
    assert (share.at(step=NEW - 1).values < 1).all()


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "warm"), [("gpt2", False), ("llama", True)], ids=["first run inside", "compiled before"]
)
def test_a_compiled_model_is_recorded_as_the_plain_one(name: str, warm: bool) -> None:
    """A graph that was captured before the recording must not go on without it."""
    model, ids = architectures.tiny(name), prompt()
    with torch.no_grad():
        plain = model(ids).logits
        with attnscope.record(model, queries=["last", "all"]) as expected:
            model(ids)
        torch._dynamo.reset()
        compiled: Any = torch.compile(model, backend="eager")
        if warm:
            compiled(ids)
        with attnscope.record(compiled, queries=["last", "all"]) as record:
            logits = compiled(ids).logits
        after = compiled(ids).logits
    for mine in (logits, after):
        torch.testing.assert_close(mine, plain, atol=LOGITS, rtol=0)
    assert len(record.steps) == 1
    np.testing.assert_allclose(record.received[0].values, expected.received[0].values, atol=SHALLOW)
    torch._dynamo.reset()


def test_a_mask_and_a_cache_passed_by_position_count_like_named_ones() -> None:
    bert = architectures.tiny("bert")
    ids = prompt(2, 20)
    mask = torch.ones_like(ids)
    mask[0, 12:] = 0
    with torch.no_grad():
        with attnscope.record(bert, queries=["last", "all"]) as named:
            bert(ids, attention_mask=mask)
        with attnscope.record(bert, queries=["last", "all"]) as placed:
            bert(ids, mask)
    np.testing.assert_array_equal(placed.received[0].values, named.received[0].values)
    llama, cache = architectures.tiny("llama"), tf.DynamicCache()
    with torch.no_grad(), attnscope.record(llama, queries=["last"]) as record:
        llama.model(ids[1:, :12], past_key_values=cache)
        llama.model(ids[1:, 12:], None, None, cache)
    assert [step.keys for step in record.steps] == [12, 20]


@pytest.mark.parametrize("name", ["llama", "gpt-j", "mistral, window"])
def test_pads_do_not_count_with_a_static_cache_either(name: str) -> None:
    """There `generate` hands the model a ready mask, which has to show where the pads are."""
    model, ids = architectures.tiny(name), prompt(2, 12)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    with attnscope.record(model, queries=["last", "all"]) as dynamic:
        written(model, ids, attention_mask=mask)
    with attnscope.record(model, queries=["last", "all"]) as static:
        written(model, ids, attention_mask=mask, cache_implementation="static")
    for one, two in zip(dynamic.received, static.received, strict=True):
        np.testing.assert_allclose(one.values, two.values, atol=SHALLOW)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("hidden", ["one key", "from one head"])
def test_a_mask_of_ones_own_hides_keys_and_leaves_every_query(name: str, hidden: str) -> None:
    """A token whose key no query sees is not a pad: its own query sees others."""
    model, ids = architectures.tiny(name), prompt(1, 20)
    heads = 1 if hidden != "from one head" else model.config.num_attention_heads
    seen = torch.ones(heads, 20, 20, dtype=torch.bool).tril()
    if hidden == "one key":
        seen[:, 4:, 5] = False
    else:
        seen[0] = False
        seen[0, :, 0] = True
    mask = torch.zeros(1, *seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad(), attnscope.record(model, queries=["last", "all"]) as record:
        model(ids, attention_mask=mask)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(ids, attention_mask=mask, output_attentions=True).attentions
    want = torch.stack([torch.stack([each[0, :, -1], each[0].mean(1)], 1) for each in weights])
    np.testing.assert_allclose(np.asarray(record.received).reshape(want.shape), want, atol=SHALLOW)


def test_a_last_token_that_may_be_a_pad_is_refused() -> None:
    """Whether it is one or hidden from itself, a ready mask looks the same."""
    model, ids = architectures.tiny("llama"), prompt(2, 12)
    seen = torch.ones(1, 12, 12, dtype=torch.bool).tril(-1)
    seen[:, 0, 0] = True
    own = torch.zeros(1, *seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    pads = torch.ones_like(ids)
    pads[0, -3:] = 0
    with pytest.raises(AttnscopeError, match="whether the last token is a pad"), attnscope.record(model):
        model(ids[:1], attention_mask=own)
    with pytest.raises(AttnscopeError, match="whether the last token is a pad"), attnscope.record(model):
        written(model, ids, attention_mask=pads, cache_implementation="static")


def test_a_failed_forward_does_not_move_the_layers_of_the_next() -> None:
    """ALBERT runs one module as every layer, in turn."""
    torch.manual_seed(0)
    config = tf.AlbertConfig(**{**architectures.COMMON, "embedding_size": 16, "initializer_range": 0.3})
    model, ids = tf.AlbertModel(config).eval(), prompt(1, 20)
    calls = 0

    def fail(_module: nn.Module, _args: Any, _output: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("in the middle")

    shared = model.encoder.albert_layer_groups[0].albert_layers[0]
    with torch.no_grad(), attnscope.record(model, queries="all") as record:
        model(ids)
        hook = shared.register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="middle"):
            model(ids)
        hook.remove()
        model(ids)
    assert len(record.steps) == 2
    np.testing.assert_array_equal(record.received[0].values, record.received[1].values)


def test_recordings_may_end_in_any_order() -> None:
    model, ids = architectures.tiny("llama"), prompt()
    model.set_attn_implementation("eager")
    try:
        first, second = attnscope.record(model), attnscope.record(model)
        one, two = first.__enter__(), second.__enter__()
        model(ids)
        first.__exit__(None, None, None)
        model(ids)
        second.__exit__(None, None, None)
        assert model.config._attn_implementation == "eager"
        assert (len(one), len(two)) == (1, 2)
    finally:
        model.set_attn_implementation("sdpa")


def test_asking_for_attention_weights_inside_a_recording_is_refused() -> None:
    model = architectures.tiny("llama")
    with pytest.raises(AttnscopeError, match="output_attentions"), attnscope.record(model):
        model(prompt(), output_attentions=True)


def test_lookback_over_several_texts_is_refused() -> None:
    model = architectures.tiny("llama")
    with attnscope.record(model) as record:
        written(model, prompt())
        written(model, prompt(1, 12))
    with pytest.raises(AttnscopeError, match=f"step {NEW} begins another text"):
        record.lookback()
    with attnscope.record(model) as one:
        written(model, prompt())
    for keys in (0, -1, 1.5):
        with pytest.raises(AttnscopeError, match="keys"):
            one.lookback(keys)  # type: ignore[arg-type]
    np.testing.assert_array_equal(one.lookback(np.int64(3)).values, one.lookback(3).values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("queries", ["last", "all"])
def test_a_mask_may_be_as_long_as_the_cache_will_be(name: str, queries: str) -> None:
    model, ids = architectures.tiny(name), prompt(2, 10)
    mask = torch.ones(2, 17, dtype=torch.int64)
    mask[0, :4] = 0
    mask[:, 10:] = 0
    cache = tf.StaticCache(config=model.config, max_cache_len=17)
    with torch.no_grad(), attnscope.record(model, queries=[queries]) as record:
        model(ids, attention_mask=mask, past_key_values=cache)
    weights = reference.eager(model, {"input_ids": ids, "attention_mask": mask[:, :10]}).attentions[1]
    for row, first in ((0, 4), (1, 0)):
        want = weights[row, :, -1] if queries == "last" else weights[row, :, first:].mean(1)
        got = record.received[0].at(prompt=row, layer=1, queries=queries).values
        np.testing.assert_allclose(got, want, atol=SHALLOW)


def test_distances_beside_pads_are_the_same_in_any_cache() -> None:
    model, ids = architectures.tiny("llama"), prompt(2, 10)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with torch.no_grad(), attnscope.record(model, measures=["distance"]) as record:
        for cache in (None, tf.StaticCache(config=model.config, max_cache_len=40)):
            model(ids, attention_mask=mask, past_key_values=cache)
    one, two = record["distance"]
    np.testing.assert_allclose(one.values, two.values, atol=100 * SHALLOW)


@pytest.mark.parametrize("name", ["llama", "gpt-oss, sinks and window"])
def test_a_prompt_of_pads_alone_is_refused(name: str) -> None:
    model, mask = architectures.tiny(name), torch.ones(2, 6, dtype=torch.int64)
    mask[1] = 0
    with pytest.raises(AttnscopeError, match="prompt 1 of the batch has no token"), attnscope.record(model):
        model(prompt(2, 6), attention_mask=mask)


def test_a_boolean_mask_that_eager_attention_would_add_is_refused() -> None:
    model = copy.deepcopy(architectures.tiny("llama"))
    model.set_attn_implementation("eager")
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril()
    with pytest.raises(AttnscopeError, match="hides nothing"), attnscope.record(model):
        model(prompt(1, 6), attention_mask=mask)


@pytest.mark.parametrize("name", ["gpt-j", "bloom", "mpt", "falcon"])
def test_weights_that_are_only_shown_after_dropout_are_refused(name: str) -> None:
    model: Any = copy.deepcopy(architectures.tiny(name)).train()
    for each in model.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.1
        if hasattr(each, "attn_dropout_p"):
            each.attn_dropout_p = 0.1
    with pytest.raises(AttnscopeError, match="only after dropout"), attnscope.record(model):
        model(prompt())
    model.eval()
    with attnscope.record(model) as record:
        model(prompt())
    assert len(record) == 1


@pytest.mark.parametrize("name", ["falcon", "bloom", "gpt-j", "mpt"])
def test_models_read_by_their_own_weights_are_recorded_in_16_bits_and_nest(name: str) -> None:
    model: Any = copy.deepcopy(architectures.tiny(name))
    model.to(torch.bfloat16)
    with attnscope.record(model) as outer, attnscope.record(model, queries=["all"]) as inner:
        model(prompt())
    assert (len(outer), len(inner)) == (1, 1)
    got = inner.received[0].at(prompt=0, queries="all").values
    np.testing.assert_allclose(got.sum(-1), 1, atol=0.02)
