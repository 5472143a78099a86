"""Facts about an architecture, read from its configuration before any weights are loaded.

What the configuration states (layer types, encoder and decoder) comes first. The tables below are only for
architectures whose configuration doesn't say that their layers have no softmax over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transformers.models.auto import modeling_auto

from attnscope.errors import AttnscopeError

_RUNNING_STATE = "keeps a running state (state space or linear attention), so no weights over tokens exist"
_COMPRESSED = "attends to compressed blocks, not to tokens"

_TYPES_WITHOUT_WEIGHTS = {
    "linear_attention": _RUNNING_STATE,
    "mamba": _RUNNING_STATE,
    "mamba2": _RUNNING_STATE,
    "recurrent": _RUNNING_STATE,
    "conv": "is a convolution, so no weights over tokens exist",
    "moe": "is a mixture of experts with no attention",
    "mlp": "is a feed-forward layer with no attention",
    "compressed_sparse_attention": _COMPRESSED,
    "heavily_compressed_attention": _COMPRESSED,
    "cross_attention": "attends to an image, not to the text",
}

_MODELS_WITHOUT_WEIGHTS = {
    "mamba": _RUNNING_STATE,
    "mamba2": _RUNNING_STATE,
    "falcon_mamba": _RUNNING_STATE,
    "rwkv": _RUNNING_STATE,
    "xlstm": _RUNNING_STATE,
    "fnet": "mixes tokens by a Fourier transform, so no weights over tokens exist",
    "reformer": "attends within hash buckets, so its weights are not over all tokens",
    "nystromformer": "approximates the softmax, so no exact weights exist",
    "yoso": "approximates the softmax, so no exact weights exist",
    "mra": "approximates the softmax, so no exact weights exist",
    "funnel": "pools tokens between layers, so its keys are not tokens",
    "perceiver": "attends from latent vectors, not from tokens",
    "canine": "attends over pooled characters, so its keys are not tokens",
    "diffllama": "subtracts two softmaxes, so its weights are not a distribution over tokens",
}

# Their first position is pad_token_id + 1, so the first rows of the position table are never used.
_POSITIONS_AFTER_PAD = frozenset(
    {"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "roberta-prelayernorm", "data2vec-text", "mpnet", "xmod"}
)


@dataclass(frozen=True)
class Architecture:
    """Layers and heads of the text model, its context in tokens (None: no known limit), and unreadable layers."""

    model_type: str
    layers: int
    heads: int
    context: int | None
    unreadable: dict[int, str] = field(default_factory=dict)

    @property
    def softmax_layers(self) -> list[int]:
        """The layers whose attention is a softmax over tokens, in order."""
        return [layer for layer in range(self.layers) if layer not in self.unreadable]


def describe(config: Any, name: str) -> Architecture:
    """The facts in a configuration; a model without a single layer that can be measured is refused, with the reason."""
    text = config.get_text_config()
    model_type = str(getattr(text, "model_type", "") or config.model_type)
    if not _reads_text(config):
        raise _refusal(name, config.model_type, "it is not a language model")
    if getattr(config, "is_encoder_decoder", False) or getattr(text, "is_encoder_decoder", False):
        raise _refusal(name, config.model_type, "it is an encoder and a decoder, two stacks joined by cross attention")
    layers = getattr(text, "num_hidden_layers", None)
    heads = _heads(text)
    reason = _MODELS_WITHOUT_WEIGHTS.get(model_type)
    if reason or not isinstance(layers, int) or heads is None:
        raise _refusal(name, model_type, f"it {reason}" if reason else "its configuration names no attention heads")
    unreadable = unreadable_layers(config)
    if len(unreadable) >= layers:
        raise _refusal(name, model_type, f"every layer {next(iter(unreadable.values()))}")
    return Architecture(model_type, layers, heads, context_length(config), unreadable)


def unreadable_layers(config: Any) -> dict[int, str]:
    """Why a layer has no softmax over tokens, by layer; empty for a plain transformer."""
    text = config.get_text_config()
    types = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    unreadable = {
        layer: _TYPES_WITHOUT_WEIGHTS[kind] for layer, kind in enumerate(types) if kind in _TYPES_WITHOUT_WEIGHTS
    }
    for layer in getattr(text, "cross_attention_layers", None) or ():
        unreadable[layer] = _TYPES_WITHOUT_WEIGHTS["cross_attention"]
    return dict(sorted(unreadable.items()))


def context_length(config: Any) -> int | None:
    """How many tokens a prompt may have, or None where the configuration sets no limit."""
    text = config.get_text_config()
    for attribute in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length"):
        length = getattr(text, attribute, None)
        if isinstance(length, int) and length > 0:
            if text.model_type in _POSITIONS_AFTER_PAD:
                return length - int(text.pad_token_id or 0) - 1
            return length
    return None


def _reads_text(config: Any) -> bool:
    if getattr(config, "auto_map", None):  # custom code, about which transformers knows nothing
        return True
    tasks = "CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "TEXT_ENCODING", "SEQUENCE_CLASSIFICATION"
    known = (getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES") for task in tasks)
    return getattr(config, "is_encoder_decoder", False) or any(config.model_type in names for names in known)


def _heads(text: Any) -> int | None:
    heads = getattr(text, "num_attention_heads", None)
    if isinstance(heads, (list, tuple)):  # differs by layer
        heads = max(heads)
    return heads if isinstance(heads, int) and heads > 0 else None


def _refusal(name: str, model_type: str, reason: str) -> AttnscopeError:
    return AttnscopeError(
        f"can't measure a {model_type} model",
        where=name,
        allowed=f"{reason}; models with softmax attention over tokens can be measured",
        todo="choose another model",
    )
