"""Models that do something of their own: measured exactly, batched or alone, or refused with the reason."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

import attnscope
from attnscope import AttnscopeError, Lens
from tests.attention import reference
from tests.attention.architectures import COMMON, DEEPSEEK, GROUPED
from tests.models import tiny
from tests.tolerances import SHALLOW, SUMMED

TEXT = "A line of # and * and more of them, long enough to be longer than any window. " * 2


def lens_on(folder: Path, config: Any, model_class: str) -> Lens:
    """A lens on a tiny random model of this class, with weights large enough for attention to be far from even."""
    config.vocab_size = len(tiny.VOCABULARY)
    torch.manual_seed(3)
    model = getattr(tf, model_class)(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or name.endswith(".A"):
                parameter.normal_(std=0.15)
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return attnscope.load(str(folder))


def agrees(lens: Lens, text: str = TEXT) -> None:
    reading = lens.measure(text, ["last", "all"])
    ids = torch.tensor([[token.id for token in reading.tokens]])
    attentions = reference.eager(lens.model, {"input_ids": ids}).attentions
    for layer, attention in enumerate(attentions):
        np.testing.assert_allclose(reading.received[layer, :, 0], attention[0, :, -1], atol=SHALLOW)
        np.testing.assert_allclose(reading.received[layer, :, 1], attention[0].mean(1), atol=SHALLOW)


LONG: dict[str, Any] = {"max_position_embeddings": 512}
UNUSUAL: dict[str, tuple[Any, str]] = {
    "sparse attention, chosen by an indexer": (
        tf.DeepseekV32Config(**{**DEEPSEEK, **LONG, "index_topk": 96, "index_n_heads": 2, "index_head_dim": 16}),
        "DeepseekV32ForCausalLM",
    ),
    "a mask of numbers, another one in each layer": (
        tf.DogeConfig(**{**COMMON, **LONG, "num_key_value_heads": 2, "num_hidden_layers": 6}),
        "DogeForCausalLM",
    ),
    "one module run as every layer": (
        tf.AlbertConfig(**{**COMMON, **LONG, "embedding_size": 16}),
        "AlbertModel",
    ),
    "half of its heads are convolutions": (
        tf.ConvBertConfig(**{**COMMON, **LONG, "embedding_size": 16}),
        "ConvBertModel",
    ),
    "keys and values shared across layers": (
        tf.Gemma3nTextConfig(
            **{**GROUPED, **LONG, "num_hidden_layers": 4, "num_kv_shared_layers": 2, "intermediate_size": [48] * 4},
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention"] * 2,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=len(tiny.VOCABULARY),
            laurel_rank=4,
            activation_sparsity_pattern=[0.0] * 4,
        ),
        "Gemma3nForCausalLM",
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_attention_is_read_exactly(name: str, tmp_path: Path) -> None:
    agrees(lens_on(tmp_path, *UNUSUAL[name]))


MIXED = ["Hi #", TEXT, "#"]
LENGTH_MATTERS: dict[str, tuple[Any, str]] = {
    "rotary positions scaled by the input's length": (
        tf.Phi3Config(
            **{**COMMON, **LONG, "num_key_value_heads": 2},
            original_max_position_embeddings=16,
            rope_parameters={
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [4.0] * 4,
                "rope_theta": 10000.0,
            },
        ),
        "Phi3ForCausalLM",
    ),
    "embeddings that look at the next token": (tf.MobileBertConfig(**{**COMMON, **LONG}), "MobileBertModel"),
    "an encoder": (tf.BertConfig(**{**COMMON, **LONG}), "BertModel"),
    "learned positions": (tf.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256), "GPT2LMHeadModel"),
    "a mixture of experts": (tf.MixtralConfig(**{**GROUPED, **LONG}, num_local_experts=2), "MixtralForCausalLM"),
}


@pytest.mark.parametrize("name", LENGTH_MATTERS)
def test_a_prompt_in_a_batch_gets_what_it_gets_alone(name: str, tmp_path: Path) -> None:
    lens = lens_on(tmp_path, *LENGTH_MATTERS[name])
    together = lens.measure_batch(MIXED, ["last", "all"], measures=["entropy"])
    for text, batched in zip(MIXED, together, strict=True):
        alone = lens.measure(text, ["last", "all"], measures=["entropy"])
        np.testing.assert_allclose(batched.received, alone.received, atol=SHALLOW)
        np.testing.assert_allclose(batched.uniform().values, alone.uniform().values, atol=SUMMED)


def test_a_hybrid_is_refused_as_a_whole_and_its_attention_layers_are_read(tmp_path: Path) -> None:
    config = tf.Qwen3NextConfig(
        **{**GROUPED, **LONG, "num_hidden_layers": 4},
        layer_types=["linear_attention", "full_attention"] * 2,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        linear_num_value_heads=2,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    )
    lens = lens_on(tmp_path, config, "Qwen3NextForCausalLM")
    with pytest.raises(AttnscopeError, match=r"layers 0, 2.*layers 1, 3"):
        lens.measure(TEXT)
    with pytest.raises(AttnscopeError, match="running state"):
        lens.measure(TEXT, layers=[0])
    reading = lens.measure(TEXT, ["all"], layers=[1, 3])
    ids = torch.tensor([[token.id for token in reading.tokens]])
    weights = [each for each in reference.eager(lens.model, {"input_ids": ids}).attentions if each is not None]
    for place in range(2):
        np.testing.assert_allclose(reading.received[place, :, 0], weights[-2:][place][0].mean(1), atol=SHALLOW)


def test_layers_with_different_heads_are_measured_apart(tmp_path: Path) -> None:
    config = tf.LagunaConfig(**{**GROUPED, **LONG, "num_hidden_layers": 2}, num_attention_heads_per_layer=[4, 8])
    lens = lens_on(tmp_path, config, "LagunaForCausalLM")
    with pytest.raises(AttnscopeError, match="4 and 8 heads"):
        lens.measure(TEXT)
    assert lens.measure(TEXT, layers=[1]).received.shape[1] == 8


def test_a_context_shorter_than_the_check_is_no_obstacle(tmp_path: Path) -> None:
    config = tf.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=24)
    lens = lens_on(tmp_path, config, "GPT2LMHeadModel")
    assert lens.measure("ab #").evidence["check"]["tokens"] == 24


def test_a_model_that_shows_no_weights_to_compare_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = lens_on(tmp_path, tf.LlamaConfig(**GROUPED), "LlamaForCausalLM")
    monkeypatch.setattr(lens.model.base_model, "forward", lambda **_: object())
    with pytest.raises(AttnscopeError, match="no attention weights to compare"):
        lens.measure("ab")


def test_two_threads_on_one_model_leave_it_as_it_was(tmp_path: Path) -> None:
    config = tf.GptOssConfig(**GROUPED, num_local_experts=2, num_experts_per_tok=1, sliding_window=7)
    lens = lens_on(tmp_path, config, "GptOssForCausalLM")
    before = lens.model.config._attn_implementation
    expected = lens.measure(TEXT[:40], ["all"]).received
    failed: list[BaseException] = []

    def measure() -> None:
        try:
            for _ in range(5):
                np.testing.assert_allclose(lens.measure(TEXT[:40], ["all"]).received, expected, atol=SHALLOW)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=measure) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert lens.model.config._attn_implementation == before


def test_measuring_leaves_no_hooks_and_attention_weights_can_still_be_had(tmp_path: Path) -> None:
    lens = lens_on(tmp_path, tf.LlamaConfig(**GROUPED), "LlamaForCausalLM")
    lens.measure("ab #")
    assert not [hook for module in lens.model.modules() for hook in module._forward_hooks]
    ids = torch.tensor([[3, 4, 5]])
    assert len(reference.eager(lens.model, {"input_ids": ids}).attentions) == 3
    loss = lens.model(input_ids=ids, labels=ids).loss
    loss.backward()


def test_autocast_around_a_measurement_does_not_change_it(tmp_path: Path) -> None:
    lens = lens_on(tmp_path, tf.LlamaConfig(**GROUPED), "LlamaForCausalLM")
    plain = lens.measure(TEXT[:90], ["all"], measures=["entropy"])
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        mixed = lens.measure(TEXT[:90], ["all"], measures=["entropy"])
    np.testing.assert_array_equal(plain.received, mixed.received)
    np.testing.assert_array_equal(plain["entropy"], mixed["entropy"])


@pytest.mark.parametrize("rows", [[3, 3, 4], [True, False], [1.5], [-1], [400]])
def test_rows_that_make_no_mean_are_refused(rows: list[Any], tmp_path: Path) -> None:
    lens = lens_on(tmp_path, tf.LlamaConfig(**GROUPED), "LlamaForCausalLM")
    with pytest.raises(AttnscopeError, match="each once"):
        lens.measure(TEXT[:20], ["mine"], rows={"mine": rows})


def test_missing_or_doubled_choices_are_refused(tmp_path: Path) -> None:
    lens = lens_on(tmp_path, tf.LlamaConfig(**GROUPED), "LlamaForCausalLM")
    wrong_ones: list[dict[str, Any]] = [
        {"queries": []},
        {"queries": ["last", "last"]},
        {"layers": []},
        {"queries": ["x"], "rows": {"last": [0]}},
    ]
    for wrong in wrong_ones:
        with pytest.raises(AttnscopeError):
            lens.measure("ab", **wrong)
    for empty in (lens.measure_batch, lens.measure_tokens):
        with pytest.raises(AttnscopeError):
            empty([])
    with pytest.raises(AttnscopeError):
        lens.measure_batch(["a", "b"], ["x"], rows=[{"x": [0]}])
    with pytest.raises(AttnscopeError, match="already a class"):
        lens.measure("ab").mass({"other": "#"})
    with pytest.raises(AttnscopeError, match="unknown to"):
        lens.measure_tokens([10**6])
    assert lens.measure("ab", "last").queries == ["last"]


def test_a_chat_template_that_refuses_is_told_in_one_line(tmp_path: Path) -> None:
    lens = lens_on(tmp_path, tf.LlamaConfig(**GROUPED), "LlamaForCausalLM")
    with pytest.raises(AttnscopeError, match="no chat template"):
        lens.measure("ab", chat=True)
    lens.tokenizer.chat_template = "{{ raise_exception('system message needed') }}"
    with pytest.raises(AttnscopeError, match="system message needed"):
        lens.measure("ab", chat=True)
