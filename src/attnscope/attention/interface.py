"""The door into a model: transformers' attention interface, opened for one forward and closed again.

A model that follows the interface asks a table for its attention function by the name in its config. For the length of
a forward that name is `sdpa`, and the table's `sdpa` is our function, which hands each call to the recorder. A name of
our own would do for most models, but some ask for the name itself before they decide what goes into the mask (sparse
attention does), and under an unknown one they leave it out without a word.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from attnscope.attention.recorder import Call, Recorder, plain_output

NAME = "sdpa"

_recorder: ContextVar[Recorder | None] = ContextVar("attnscope_recorder", default=None)
_one_at_a_time = threading.RLock()  # configs, the table and torch's thread count belong to the whole process


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
    if recorder is None and softcap is None and s_aux is None:  # another thread's model
        more = {"is_causal": is_causal, "position_bias": position_bias, "sliding_window": sliding_window, **rest}
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
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
    if recorder is None or layer is None:  # no layer: a vision or audio tower beside the text model
        return plain_output(call), None
    return recorder.attention(layer, call), None


@contextmanager
def opened(model: PreTrainedModel, recorder: Recorder) -> Iterator[None]:
    """Inside, the model's attention goes through `recorder`; after, all is as it was, whatever happened."""
    with implementation(model, NAME):
        table = AttentionInterface._global_mapping
        before = table[NAME]
        token = _recorder.set(recorder)
        table[NAME] = _attention
        try:
            yield
        finally:
            table[NAME] = before
            _recorder.reset(token)


@contextmanager
def implementation(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Inside, every config of the model names this attention implementation, and the model doesn't train."""
    with _one_at_a_time:
        configs = {id(config): config for config in _configs(model)}
        before = {key: config._attn_implementation_internal for key, config in configs.items()}
        modes = [module for module in model.modules() if module.training]
        device = next(model.parameters()).device.type
        try:
            for config in configs.values():
                config._attn_implementation_internal = name
            for module in modes:
                module.training = False
            inference = torch.inference_mode(not length_matters(model.config))
            with inference, torch.no_grad(), torch.autocast(device, enabled=False):
                yield
        finally:
            for key, config in configs.items():
                config._attn_implementation_internal = before[key]
            for module in modes:
                module.training = True


@contextmanager
def hooks_kept(model: PreTrainedModel) -> Iterator[None]:
    """Take off the hooks that transformers leaves on a model once it was asked for its attention weights."""
    before = {id(module): set(module._forward_hooks) for module in model.modules()}
    flag = "_output_capturing_hooks_installed"
    flagged = {id(module) for module in model.modules() if getattr(module, flag, False)}
    try:
        yield
    finally:
        for module in model.modules():
            for hook in set(module._forward_hooks) - before[id(module)]:
                del module._forward_hooks[hook]
            if id(module) not in flagged and getattr(module, flag, False):
                delattr(module, flag)


def length_matters(config: Any) -> bool:
    """Whether rotary positions depend on how long the input is; such a model then rewrites its own buffers."""
    told = str(getattr(config.get_text_config(), "rope_parameters", None) or "")
    return "longrope" in told or "dynamic" in told


def _configs(model: PreTrainedModel) -> Iterator[Any]:
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            yield config
