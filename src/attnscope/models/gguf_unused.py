"""What a GGUF file holds that transformers would leave out: weights without a place, settings without effect.

Attention without them would be that of another model, and nothing would show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.models.gguf_reader import damage_explained

# Settings that change no number, or that the shapes of the weights confirm.
_WITHOUT_EFFECT = frozenset(
    {
        "block_count",
        "context_length",
        "embedding_length",
        "expert_feed_forward_length",
        "expert_shared_feed_forward_length",
        "feed_forward_length",
        "pooling_type",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "tensor_data_layout",
        "vocab_size",
    }
)
_EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps")


def refuse_unused_weights(path: Path, architecture: str, names: list[str], model: Any, reader: Any) -> None:
    """Refuse a file with a tensor that fills no parameter. model: the whole model, which may be on the meta device."""
    from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS

    if architecture in GGUF_ARCHS:  # these are loaded by name, and what is left over is reported
        return
    places = _places(path, architecture, model)
    unused = [name for name in names if name not in places and name.removesuffix(".weight") not in places]
    unused = [name for name in unused if not _changes_nothing(name, reader)]
    if unused:
        raise unused_weights(path, unused)


def unused_weights(path: Path, names: list[str]) -> AttnscopeError:
    """The error for weights that would be left out."""
    rope = any(name.startswith("rope_f") for name in names)
    return AttnscopeError(
        "this GGUF file holds weights that would not be used",
        where=f"{path}, {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}",
        allowed="rotary positions that are scaled per dimension can't be converted exactly"
        if rope
        else "transformers has no place for them, and without them it would be another model",
        todo="load the original model instead (a folder or a Hub id)",
    )


def _places(path: Path, architecture: str, model: Any) -> set[str]:
    """The names of the tensors that transformers takes from a file of this architecture."""
    conversion: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    with damage_explained(path):
        processor = conversion.TENSOR_PROCESSORS.get(architecture, conversion.TensorProcessor)(config={})
        places = set(conversion.get_gguf_hf_weights_map(model, processor))
    return places | ({"output.weight"} if architecture == "gpt2" else set())  # which its processor takes by itself


def _changes_nothing(name: str, reader: Any) -> bool:
    """Old files of Llama have factors of 1 for its rotary positions."""
    if name != "rope_freqs.weight":
        return False
    factors = next(tensor.data for tensor in reader.tensors if tensor.name == name)
    return bool((factors == 1).all())


def refuse_unused_settings(path: Path, architecture: str, fields: dict[str, Any], config: Any) -> None:
    """Refuse a file with a setting of the model that the configuration made from it does not have."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
    from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS

    text = config.get_text_config()
    _refuse_unknown_scale(path, text)
    mappings: dict[str, Any] = dict(GGUF_CONFIG_MAPPING)
    mapped = mappings.get(text.model_type.removesuffix("_text"), {})
    for key, value in _settings(architecture, fields):
        confirms = _CONFIRMED.get(key)
        if confirms is not None:
            applied = confirms(text, value)
        else:
            applied = key in _WITHOUT_EFFECT or mapped.get(key) is not None or architecture in GGUF_CONFIG_ARCHS
        if not applied:
            raise AttnscopeError(
                "this GGUF file has a setting that would not be applied",
                where=f"{path}, {architecture}.{key} = {str(value)[:60]}",
                allowed="transformers does not read it from a GGUF file, and without it it would be another model",
                todo="load the original model instead (a folder or a Hub id)",
            )


def _settings(architecture: str, fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, field in fields.items():
        prefix, _, rest = key.partition(".")
        if prefix == architecture:
            yield rest, field.contents()


def _refuse_unknown_scale(path: Path, config: Any) -> None:
    """Gemma's largest models divide scores by another number than the rest, which their files don't state."""
    stated = getattr(config, "query_pre_attn_scalar", None)
    if stated is not None and stated != config.head_dim:
        raise AttnscopeError(
            "this GGUF file does not say how its model scales attention scores",
            where=f"{path}, heads of {config.head_dim} dimensions",
            allowed=f"it is known for heads of {stated}",
            todo="load the original model instead (a folder or a Hub id)",
        )


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _rope(config: Any, kind: str) -> dict[str, Any]:
    """The settings of rotary positions, for one kind of layer where these differ."""
    rope = getattr(config, "rope_parameters", None) or {}
    return dict(rope.get(kind, rope) or {})


def _rotary_dim(config: Any) -> float:
    share = _rope(config, "full_attention").get("partial_rotary_factor", getattr(config, "partial_rotary_factor", None))
    return _head_dim(config) * (1.0 if share is None else float(share))


def _same(one: Any, two: Any) -> bool:
    """GGUF files hold settings in float32; some are lists, with a number per layer."""
    if isinstance(one, list) or isinstance(two, list | str):
        return bool(one == two)
    return math.isclose(float(one or 0), float(two or 0), rel_tol=1e-6)


def _attribute(name: str) -> Callable[[Any, Any], bool]:
    return lambda config, value: _same(getattr(config, name, None), value)


def _has_epsilon(config: Any, value: Any) -> bool:
    return any(_attribute(name)(config, value) for name in _EPSILONS)


def _is(*values: float) -> Callable[[Any, Any], bool]:
    return lambda _, value: any(_same(each, value) for each in values)


def _theta(kind: str) -> Callable[[Any, Any], bool]:
    return lambda config, value: _same(_rope(config, kind).get("rope_theta"), value)


# Setting -> whether the model made from a configuration does as its value says.
_CONFIRMED: dict[str, Callable[[Any, Any], bool]] = {
    "attention.causal": _is(1),
    "attention.clamp_kqv": _is(0),
    "attention.head_count": _attribute("num_attention_heads"),
    "attention.key_length": lambda config, value: _same(_head_dim(config), value),
    "attention.layer_norm_epsilon": lambda config, value: _has_epsilon(config, value),
    "attention.layer_norm_rms_epsilon": lambda config, value: _has_epsilon(config, value),
    "attention.max_alibi_bias": _is(0),
    "attention.scale": lambda config, value: _same(value, 0) or _same(_head_dim(config) ** -0.5, value),
    "attention.sliding_window": _attribute("sliding_window"),
    "attention.value_length": lambda config, value: _same(_head_dim(config), value),
    "attn_logit_softcapping": _attribute("attn_logit_softcapping"),
    "embedding_scale": _is(0, 1),
    "expert_gating_func": lambda config, value: hasattr(config, "scoring_func") or _same(value, 1),
    "final_logit_softcapping": _attribute("final_logit_softcapping"),
    "logit_scale": _is(0, 1),
    "residual_scale": _is(0, 1),
    "rope.dimension_count": lambda config, value: _same(_rotary_dim(config), value),
    "rope.freq_base": _theta("full_attention"),
    "rope.freq_base_swa": _theta("sliding_attention"),
    "rope.scale_linear": _is(0, 1),
    "rope.scaling.attn_factor": _is(0, 1),
    "rope.scaling.factor": _is(0, 1),
    "rope.scaling.type": lambda _, value: value == "none",
    "use_parallel_residual": _attribute("use_parallel_residual"),
}
