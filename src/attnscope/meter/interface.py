"""The door into a model: transformers' attention interface, opened for one forward and closed again.

A model that follows the interface asks a table for its attention function by the name in its config. For the length
of a forward the name is ours, and our function hands each call to the recorder. The mask table has to know the name
too: without it transformers gives no mask at all, and padded prompts come out wrong without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from attnscope.meter.recorder import Call, Recorder

NAME = "attnscope"

_recorder: ContextVar[Recorder | None] = ContextVar("attnscope_recorder", default=None)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    recorder = _recorder.get()
    layer = getattr(module, "layer_idx", None)
    if recorder is None or layer is None:  # a vision or audio tower beside the text model
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal, **rest
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    queries, keys = query.shape[2], key.shape[2]
    causal = bool(causal) and attention_mask is None and queries > 1
    if causal and keys > queries:  # an empty static cache: the keys beyond are not written yet
        key, value = key[:, :, :queries], value[:, :, :queries]
    call = Call(
        query=query,
        key=key,
        value=value,
        mask=attention_mask,
        causal=causal,
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        softcap=softcap,
        sinks=s_aux,
        bias=position_bias,
        window=sliding_window,
    )
    return recorder.attention(layer, call), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def opened(model: PreTrainedModel, recorder: Recorder) -> Iterator[None]:
    """Inside, the model's attention goes through `recorder`; after, the model is as it was, whatever happened."""
    with implementation(model, NAME):
        token = _recorder.set(recorder)
        try:
            yield
        finally:
            _recorder.reset(token)


@contextmanager
def implementation(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Inside, every config of the model names this attention implementation, and the model doesn't train."""
    configs = {id(config): config for config in _configs(model)}
    before = {key: config._attn_implementation_internal for key, config in configs.items()}
    modes = [module for module in model.modules() if module.training]
    try:
        for config in configs.values():
            config._attn_implementation_internal = name
        model.train(False)
        with torch.inference_mode():
            yield
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]
        for module in modes:
            module.training = True


def _configs(model: PreTrainedModel) -> Iterator[Any]:
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            yield config
