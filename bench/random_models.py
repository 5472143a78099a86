"""Small models with random weights whose attention has one feature each, or one real model's shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GptOssConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)


def qwen_shape() -> PretrainedConfig:
    """Qwen2.5-1.5B's own numbers, but for 3 layers instead of 28."""
    return Qwen2Config(
        hidden_size=1536,
        num_attention_heads=12,
        num_key_value_heads=2,
        intermediate_size=8960,
        vocab_size=151936,
        num_hidden_layers=3,
        max_position_embeddings=131072,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
    )


def window() -> PretrainedConfig:
    return MistralConfig(**_small(heads=12, kv_heads=4), head_dim=64, sliding_window=512)


def softcap() -> PretrainedConfig:
    return Gemma2Config(**_small(heads=8, kv_heads=4), head_dim=96, query_pre_attn_scalar=96, sliding_window=512)


def sinks() -> PretrainedConfig:
    return GptOssConfig(
        **_small(heads=12, kv_heads=4), head_dim=64, num_local_experts=4, num_experts_per_tok=2, sliding_window=128
    )


CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "qwen_shape": qwen_shape,
    "window": window,
    "softcap": softcap,
    "sinks": sinks,
}


def random_model(name: str, *, softcapped: bool = True) -> PreTrainedModel:
    """fp32, with the attention implementation transformers picks by itself."""
    torch.manual_seed(0)
    config = CONFIGS[name]()
    if not softcapped and hasattr(config, "attn_logit_softcapping"):
        config.attn_logit_softcapping = None
    untyped: Any = AutoModelForCausalLM
    model: PreTrainedModel = untyped.from_config(config, dtype=torch.float32).eval()
    return model


def _small(heads: int, kv_heads: int) -> dict[str, Any]:
    return {
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": 8192,
        "max_position_embeddings": 8192,
    }
