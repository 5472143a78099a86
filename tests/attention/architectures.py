"""Tiny random models of the architectures people use, made from their configs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers as tf
from transformers import PreTrainedModel

VOCAB = 97
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED: dict[str, Any] = {**COMMON, "num_key_value_heads": 2, "head_dim": 8}


def _gemma3_config() -> Any:
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    text = {**GROUPED, "sliding_window": 7, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    return tf.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)


def _eagerly(config: Any) -> Any:
    """Of a model whose other implementations compute something else."""
    config._attn_implementation = "eager"
    return config


def _moe(**more: Any) -> dict[str, Any]:
    return {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, **more}


DEEPSEEK: dict[str, Any] = {
    **COMMON,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
GPT2: dict[str, Any] = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "n_inner": 48}
OPT: dict[str, Any] = {**COMMON, "ffn_dim": 48, "word_embed_proj_dim": 32}
LLAMA4: dict[str, Any] = {**GROUPED, "num_local_experts": 2, "intermediate_size_mlp": 48, "attention_chunk_size": 8}

THROUGH_INTERFACE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "llama": lambda: (tf.LlamaForCausalLM, tf.LlamaConfig(**GROUPED)),
    "llama, one head each": lambda: (tf.LlamaForCausalLM, tf.LlamaConfig(**COMMON, num_key_value_heads=4)),
    "llama, one kv head": lambda: (tf.LlamaForCausalLM, tf.LlamaConfig(**COMMON, num_key_value_heads=1)),
    "qwen2": lambda: (tf.Qwen2ForCausalLM, tf.Qwen2Config(**COMMON, num_key_value_heads=2)),
    "qwen3": lambda: (tf.Qwen3ForCausalLM, tf.Qwen3Config(**GROUPED)),
    "qwen3-moe": lambda: (tf.Qwen3MoeForCausalLM, tf.Qwen3MoeConfig(**_moe())),
    "gemma": lambda: (tf.GemmaForCausalLM, tf.GemmaConfig(**GROUPED)),
    "gemma2, softcap and window": lambda: (
        tf.Gemma2ForCausalLM,
        tf.Gemma2Config(**GROUPED, query_pre_attn_scalar=8, sliding_window=7, attn_logit_softcapping=5.0),
    ),
    "gemma3 text, window": lambda: (
        tf.Gemma3ForCausalLM,
        tf.Gemma3TextConfig(
            **GROUPED,
            sliding_window=7,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
    "gemma3 inside a multimodal model": lambda: (tf.Gemma3ForConditionalGeneration, _gemma3_config()),
    "mistral, window": lambda: (tf.MistralForCausalLM, tf.MistralConfig(**GROUPED, sliding_window=7)),
    "mixtral": lambda: (tf.MixtralForCausalLM, tf.MixtralConfig(**GROUPED, num_local_experts=2)),
    "phi": lambda: (tf.PhiForCausalLM, tf.PhiConfig(**COMMON)),
    "phi3": lambda: (tf.Phi3ForCausalLM, tf.Phi3Config(**COMMON, num_key_value_heads=2)),
    "gpt2": lambda: (tf.GPT2LMHeadModel, tf.GPT2Config(**GPT2)),
    "gpt-neox": lambda: (tf.GPTNeoXForCausalLM, tf.GPTNeoXConfig(**COMMON)),
    "gpt-oss, sinks and window": lambda: (
        tf.GptOssForCausalLM,
        tf.GptOssConfig(**GROUPED, num_local_experts=2, num_experts_per_tok=1, sliding_window=7),
    ),
    "smollm3": lambda: (tf.SmolLM3ForCausalLM, tf.SmolLM3Config(**COMMON, num_key_value_heads=2)),
    "olmo2": lambda: (tf.Olmo2ForCausalLM, tf.Olmo2Config(**COMMON, num_key_value_heads=2)),
    "opt": lambda: (tf.OPTForCausalLM, tf.OPTConfig(**OPT)),
    "deepseek-v3, values narrower than keys": lambda: (tf.DeepseekV3ForCausalLM, tf.DeepseekV3Config(**DEEPSEEK)),
    "llama4 text, chunks": lambda: (tf.Llama4ForCausalLM, tf.Llama4TextConfig(**LLAMA4)),
    "bert": lambda: (tf.BertModel, tf.BertConfig(**COMMON)),
    "modernbert": lambda: (tf.ModernBertModel, tf.ModernBertConfig(**COMMON, local_attention=8)),
    "cohere": lambda: (tf.CohereForCausalLM, tf.CohereConfig(**COMMON, num_key_value_heads=2)),
    "stablelm": lambda: (tf.StableLmForCausalLM, tf.StableLmConfig(**COMMON, num_key_value_heads=2)),
    "starcoder2": lambda: (tf.Starcoder2ForCausalLM, tf.Starcoder2Config(**COMMON, num_key_value_heads=2)),
    "glm4": lambda: (tf.Glm4ForCausalLM, tf.Glm4Config(**GROUPED)),
    "granite": lambda: (tf.GraniteForCausalLM, tf.GraniteConfig(**COMMON, num_key_value_heads=2)),
}

MPT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "n_layers": 3,
    "n_heads": 4,
    "max_seq_len": 128,
    "expansion_ratio": 2,
}
ONE_LAYER_AT_A_TIME: dict[str, Callable[[], tuple[Any, Any]]] = {
    "falcon": lambda: (tf.FalconForCausalLM, tf.FalconConfig(**COMMON)),
    "falcon, alibi": lambda: (tf.FalconForCausalLM, _eagerly(tf.FalconConfig(**COMMON, alibi=True))),
    "bloom": lambda: (tf.BloomForCausalLM, tf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=3, n_head=4)),
    "mpt": lambda: (tf.MptForCausalLM, tf.MptConfig(**MPT)),
    "gpt-j": lambda: (tf.GPTJForCausalLM, tf.GPTJConfig(**GPT2, rotary_dim=4)),
    "gpt-neo, window": lambda: (
        tf.GPTNeoForCausalLM,
        tf.GPTNeoConfig(
            **{k: v for k, v in COMMON.items() if k not in ("num_hidden_layers", "num_attention_heads")},
            num_layers=3,
            num_heads=4,
            attention_types=[[["global", "local", "global"], 1]],
            window_size=7,
        ),
    ),
    "codegen": lambda: (tf.CodeGenForCausalLM, tf.CodeGenConfig(**GPT2, rotary_dim=4)),
    "xglm": lambda: (
        tf.XGLMForCausalLM,
        tf.XGLMConfig(
            vocab_size=VOCAB, d_model=32, ffn_dim=48, num_layers=3, attention_heads=4, max_position_embeddings=128
        ),
    ),
}

EVERY = {**THROUGH_INTERFACE, **ONE_LAYER_AT_A_TIME}


@cache
def tiny(name: str) -> PreTrainedModel:
    """The model of that name: random weights, large enough that attention is far from uniform."""
    torch.manual_seed(7)
    cls, config = EVERY[name]()
    model: PreTrainedModel = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
    return model
