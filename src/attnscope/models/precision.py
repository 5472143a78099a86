"""The same weights in a wider number format, to see what rounding does to a model's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from attnscope.errors import AttnscopeError
from attnscope.models.memory import free_memory

if TYPE_CHECKING:
    from attnscope.models.load import Loaded

WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
SPARE = 1 << 29  # bytes to leave free


def widen(loaded: Loaded) -> str:
    """Convert a loaded model's weights to the next wider format in place; returns its name."""
    model = loaded.model
    wider = WIDER.get(model.dtype)
    if wider is None:
        raise _cannot(loaded, f"none is wider than {model.dtype}", "float16, bfloat16 or float32")
    if getattr(model, "hf_device_map", None) or len({each.device for each in model.parameters()}) > 1:
        raise _cannot(loaded, "the model is spread over devices", "a model on one device")
    device = next(model.parameters()).device
    if device.type == "mps" and wider == torch.float64:
        raise _cannot(loaded, f"{device} has no float64", "a CPU or a CUDA device")
    more = sum(each.numel() * (wider.itemsize - each.element_size()) for each in model.parameters())
    if more + SPARE > free_memory(device):
        raise _cannot(loaded, f"it needs {more / 2**30:.1f} GiB more", "enough memory for both formats")
    model.to(wider)  # type: ignore[arg-type]
    return str(wider).removeprefix("torch.")


def _cannot(loaded: Loaded, why: str, allowed: str) -> AttnscopeError:
    return AttnscopeError(f"no wider number format: {why}", where=loaded.name, allowed=allowed, todo="skip this check")
