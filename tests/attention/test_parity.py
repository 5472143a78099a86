"""Every architecture's received attention is eager attention's, however the batch is padded and cut into blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnscope.attention.groups import row_weights
from attnscope.models.verified import BY_EAGER, BY_INTERFACE
from tests.attention import architectures, reference
from tests.attention.reading import modules, read, real_rows, received
from tests.tolerances import LOGITS, NATS, SHALLOW, SUMMED

LENGTH, PADS = 20, 6
LAYERS = range(3)


def batch(padding: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, architectures.VOCAB, (3, LENGTH), generator=generator)
    if padding == "none":
        return {"input_ids": ids}
    mask = torch.ones_like(ids)
    mask[1, slice(0, PADS) if padding == "left" else slice(-PADS, None)] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", architectures.EVERY)
def test_received_entropy_and_outputs_equal_eager_attention(name: str, padding: str) -> None:
    model, inputs = architectures.tiny(name), batch(padding)
    real = real_rows(inputs)
    some = [{"some": [2, 9, 13]}] * 3
    weights = row_weights(["last", "all", "some"], real, some)
    found = None
    if name in architectures.ONE_LAYER_AT_A_TIME:
        found = modules(model, {"input_ids": inputs["input_ids"][:1, :4]})
    expected = reference.eager(model, inputs)

    has_logits = hasattr(expected, "logits")
    both = ("received", "entropy")
    whole = read(model, inputs, weights, LAYERS, measures=both, logits=has_logits, block=7, eager=found)
    few = read(model, inputs, weights[:, :1], LAYERS, eager=found)

    assert {whole.calls[layer] for layer in LAYERS} == {1}
    for layer in LAYERS:
        attention = expected.attentions[layer]
        want = reference.received(attention, weights)
        assert (received(whole)[layer] - want).abs().max() <= SHALLOW
        assert (received(few)[layer] - want[:, :, :1]).abs().max() <= SHALLOW
        nats = torch.einsum("bmq,bhq->bhm", weights, reference.row_entropy(attention))
        assert (whole.layers[layer].values["entropy"] - nats).abs().max() <= NATS * SHALLOW
    if has_logits:
        scale = expected.logits[real].abs().max()
        assert whole.logits is not None
        assert (whole.logits - expected.logits)[real].abs().max() <= LOGITS * max(1.0, float(scale))


@pytest.mark.parametrize("name", architectures.EVERY)
def test_uniform_attention_is_spread_over_the_keys_each_query_sees(name: str) -> None:
    model, inputs = architectures.tiny(name), batch("left")
    weights = row_weights(["last", "all"], real_rows(inputs))
    found = modules(model, {"input_ids": inputs["input_ids"][:1, :4]})
    expected = reference.eager(model, inputs)
    eager = found if name in architectures.ONE_LAYER_AT_A_TIME else None
    measured = read(model, inputs, weights, LAYERS, eager=eager)
    for layer in LAYERS:
        seen = (expected.attentions[layer] > 0).any(1, keepdim=True).float()
        seen = seen * real_rows(inputs)[:, None, None, :]
        want = reference.received(seen / seen.sum(-1, keepdim=True).clamp(min=1), weights)
        torch.testing.assert_close(measured.layers[layer].view["received.uniform"][:, :1], want, atol=SUMMED, rtol=0)


def test_the_list_of_verified_architectures_is_what_these_tests_verify() -> None:
    def types(names: Any) -> set[str]:
        return {model.config.model_type for model in map(architectures.tiny, names)}

    assert types(architectures.THROUGH_INTERFACE) == set(BY_INTERFACE)
    assert types(architectures.ONE_LAYER_AT_A_TIME) == set(BY_EAGER)


@pytest.mark.parametrize("name", ["llama", "gemma2, softcap and window", "gpt-oss, sinks and window", "gpt2"])
@pytest.mark.parametrize("prefix", [1, 12])
def test_with_a_prefix_cache_queries_are_the_new_tokens_and_keys_are_all(name: str, prefix: int) -> None:
    model = architectures.tiny(name)
    ids = batch("none")["input_ids"]
    weights = row_weights(["last", "all"], torch.ones(3, LENGTH - prefix, dtype=torch.bool))
    with torch.inference_mode():
        cache = model(input_ids=ids[:, :prefix], use_cache=True).past_key_values
    mask = torch.ones(3, LENGTH, dtype=torch.long)
    inputs = {"input_ids": ids[:, prefix:], "past_key_values": cache, "attention_mask": mask, "use_cache": True}
    measured = read(model, inputs, weights, LAYERS, block=7)
    expected = reference.eager(model, {"input_ids": ids})
    for layer in LAYERS:
        want = reference.received(expected.attentions[layer][:, :, prefix:], weights)
        got = received(measured)[layer]
        assert (got - want[..., -got.shape[-1] :]).abs().max() <= SHALLOW


def test_sinks_leave_a_share_that_no_key_receives() -> None:
    model, inputs = architectures.tiny("gpt-oss, sinks and window"), batch("none")
    weights = row_weights(["all"], real_rows(inputs))
    measured = read(model, inputs, weights, LAYERS)
    sums = torch.stack([received(measured)[layer].sum(-1) for layer in LAYERS])
    assert float(sums.max()) < 1
    assert float(sums.min()) > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sums_are_made_in_full_precision_whatever_the_models_dtype(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    cls, config = architectures.EVERY["llama"]()
    model = cls(config).to(dtype)
    inputs = batch("none")
    weights = row_weights(["last", "all"], real_rows(inputs))
    measured = read(model, inputs, weights, LAYERS)
    for layer in LAYERS:
        assert received(measured)[layer].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(received(measured)[layer].sum(-1).float(), torch.ones(3, 4, 2), atol=SHALLOW, rtol=0)


SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2.5-1.5b": ("Qwen2", {"hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2}),
    "qwen2.5-math-7b": ("Qwen2", {"hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}),
    "llama-3.1-8b": (
        "Llama",
        {
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
    ),
}


def source_model(name: str) -> Any:
    """The attention of a published model at its real size; vocabulary, feed-forward and depth cut to fit a test."""
    import transformers

    cut: dict[str, Any] = {
        "vocab_size": 512,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "max_position_embeddings": 131072,
    }
    torch.manual_seed(1)
    if name == "gemma-3-4b":
        text = {
            **cut,
            "hidden_size": 2560,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 64,
            "query_pre_attn_scalar": 256,
            "layer_types": ["sliding_attention", "full_attention"],
        }
        vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = transformers.Gemma3Config(text_config=text, vision_config={**vision, "image_size": 56})
        return transformers.Gemma3ForConditionalGeneration(config).eval()
    family, sizes = SOURCES[name]
    config = getattr(transformers, f"{family}Config")(**{**cut, **sizes})
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


@pytest.mark.parametrize("name", [*SOURCES, "gemma-3-4b"])
def test_the_attention_shapes_of_the_published_figures_equal_eager_attention(name: str) -> None:
    model = source_model(name)
    ids = torch.randint(0, 512, (1, 300), generator=torch.Generator().manual_seed(2))
    inputs = {"input_ids": ids}
    weights = row_weights(["last", "all"], real_rows(inputs))
    measured = read(model, inputs, weights, range(2))
    expected = reference.eager(model, inputs)
    for layer in range(2):
        want = reference.received(expected.attentions[layer], weights)
        assert (received(measured)[layer] - want).abs().max() <= SHALLOW
