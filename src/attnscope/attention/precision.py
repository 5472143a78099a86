"""A model run in a wider number format without being changed: its weights are converted for the length of a forward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnscope.attention.device import is_spread
from attnscope.attention.turns import lock_of
from attnscope.errors import AttnscopeError
from attnscope.models.memory import free_memory

WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
SPARE = 1 << 29  # bytes that stay free


def can_widen(model: PreTrainedModel, dtype: torch.dtype) -> str | None:
    """Why the model can't be run in a format; None if it can."""
    if is_spread(model):
        return "the model is spread over devices"
    if getattr(model, "is_quantized", False) or getattr(model.config, "quantization_config", None) is not None:
        return "the model is quantized"
    device = next(model.parameters()).device
    if device.type == "mps" and dtype == torch.float64:
        return f"{device} has no float64"
    needed = sum(each.numel() * dtype.itemsize for each in model.parameters() if each.dtype != dtype)
    if needed + SPARE > free_memory(device):
        return f"{needed / 2**30:.1f} GiB more would be needed"
    return None


@contextmanager
def widened(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """Inside, the model's weights and buffers are in another format; after, they are the very same ones."""
    wide: dict[int, Tensor] = {}

    def convert(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or not tensor.is_floating_point() or tensor.dtype == dtype:
            return tensor
        if id(tensor) not in wide:
            with torch.no_grad():
                value = tensor.detach().to(dtype)
            wide[id(tensor)] = nn.Parameter(value, requires_grad=False) if isinstance(tensor, nn.Parameter) else value
        return wide[id(tensor)]

    with lock_of(model):
        stores: list[Any] = [store for module in model.modules() for store in (module._parameters, module._buffers)]
        before: list[tuple[Any, Mapping[str, Any]]] = [(store, dict(store)) for store in stores]
        try:
            for store, values in before:
                store.update({name: convert(value) for name, value in values.items()})
            yield
        finally:
            for store, values in before:
                store.update(values)


@contextmanager
def wider(model: PreTrainedModel, name: str) -> Iterator[str]:
    """Inside, the model is in the next wider format; gives the format's name. Refused where there is none."""
    dtype = WIDER.get(model.dtype)
    reason = f"there is none wider than {model.dtype}" if dtype is None else can_widen(model, dtype)
    if dtype is None or reason is not None:
        raise AttnscopeError(
            f"no wider number format: {reason}",
            where=name,
            allowed="float16, bfloat16 or float32 on one device, and memory for both formats",
            todo="go without",
        )
    with widened(model, dtype):
        yield str(dtype).removeprefix("torch.")
