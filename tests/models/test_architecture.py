"""An architecture is described, or refused by name, before any weights are loaded."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from attnscope.errors import AttnscopeError
from attnscope.models.architecture import context_length, describe, unreadable_layers


@pytest.mark.parametrize(
    ("config_class", "reason"),
    [
        ("MambaConfig", "running state"),
        ("Mamba2Config", "running state"),
        ("FalconMambaConfig", "running state"),
        ("RwkvConfig", "running state"),
        ("xLSTMConfig", "running state"),
        ("FNetConfig", "Fourier"),
        ("T5Config", "two stacks"),
        ("BartConfig", "two stacks"),
        ("WhisperConfig", "two stacks"),
        ("T5GemmaConfig", "two stacks"),
        ("DiffLlamaConfig", "two softmaxes"),
    ],
)
def test_models_without_weights_over_tokens_are_refused_with_the_reason(config_class: str, reason: str) -> None:
    config = getattr(transformers, config_class)()
    with pytest.raises(AttnscopeError, match=reason) as refusal:
        describe(config, "some/model")
    assert config.model_type in str(refusal.value)
    assert "some/model" in str(refusal.value)


@pytest.mark.parametrize(
    ("config_class", "settings", "softmax"),
    [
        ("Qwen3NextConfig", {"num_hidden_layers": 8}, [3, 7]),
        ("JambaConfig", {"num_hidden_layers": 16}, [4, 12]),
        ("BambaConfig", {"num_hidden_layers": 4, "attn_layer_indices": [1]}, [1]),
        ("Lfm2Config", {"num_hidden_layers": 4, "full_attn_idxs": [2]}, [2]),
        ("GraniteMoeHybridConfig", {"num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"]}, [1]),
        ("NemotronHConfig", {"layers_block_type": ["mamba", "moe", "attention", "mlp"]}, [2]),
        ("MiniMaxConfig", {"num_hidden_layers": 4}, [0, 2]),
        ("RecurrentGemmaConfig", {"num_hidden_layers": 6}, [2, 5]),
        ("FalconH1Config", {"num_hidden_layers": 3}, [0, 1, 2]),
        ("Gemma3TextConfig", {"num_hidden_layers": 6}, [0, 1, 2, 3, 4, 5]),
        ("GPT2Config", {"n_layer": 2}, [0, 1]),
    ],
)
def test_hybrids_say_which_layers_have_softmax_attention(
    config_class: str, settings: dict[str, Any], softmax: list[int]
) -> None:
    config = getattr(transformers, config_class)(**settings)
    facts = describe(config, "hybrid")
    assert facts.softmax_layers == softmax
    assert set(unreadable_layers(config)) == set(range(facts.layers)) - set(softmax)


def test_zamba_reads_the_layers_that_share_attention() -> None:
    config = transformers.Zamba2Config(
        num_hidden_layers=4, layers_block_type=["mamba", "hybrid", "mamba", "hybrid"], num_mem_blocks=1
    )
    assert describe(config, "zamba").softmax_layers == [1, 3]


def test_text_model_of_a_multimodal_one_is_described() -> None:
    config = transformers.Gemma3Config(text_config={"num_hidden_layers": 3, "num_attention_heads": 2})
    facts = describe(config, "gemma")
    assert (facts.layers, facts.heads) == (3, 2)


@pytest.mark.parametrize(
    ("config", "context"),
    [
        (transformers.GPT2Config(n_positions=77), 77),
        (transformers.LlamaConfig(max_position_embeddings=4096), 4096),
        (transformers.RobertaConfig(max_position_embeddings=514, pad_token_id=1), 512),
        (transformers.BloomConfig(), None),
    ],
)
def test_context_length_is_read_from_the_configuration(config: Any, context: int | None) -> None:
    assert context_length(config) == context
