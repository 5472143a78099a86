"""Architectures compared with transformers' eager attention, by config type; a test keeps this list true."""

from __future__ import annotations

BY_INTERFACE = (
    "bert",
    "cohere",
    "deepseek_v3",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "glm4",
    "gpt2",
    "gpt_neox",
    "gpt_oss",
    "granite",
    "llama",
    "llama4_text",
    "mistral",
    "mixtral",
    "modernbert",
    "olmo2",
    "opt",
    "phi",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "smollm3",
    "stablelm",
    "starcoder2",
)
"""Measured through transformers' attention interface, at close to the cost of a plain forward."""

BY_EAGER = ("bloom", "codegen", "falcon", "gpt_neo", "gptj", "mpt", "xglm")
"""Measured through their own eager attention, one layer at a time: exact, and as slow as eager attention is."""
