"""Rotary positions that depend on the length of the input: a model keeps the scale of its longest prompt so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

_LENGTH, _FREQUENCIES, _ORIGINAL = "max_seq_len_cached", "inv_freq", "original_"


def length_matters(config: Any) -> bool:
    """Whether rotary positions depend on how long the input is; such a model rewrites its own buffers."""
    if config is None:
        return False
    rope = str(getattr(config.get_text_config(), "rope_parameters", None) or "")
    return "longrope" in rope or "dynamic" in rope


@contextmanager
def fresh_rotary(model: nn.Module) -> Iterator[None]:
    """Inside, rotary buffers are as freshly loaded, whatever longer prompts did to them; after, they are as before.

    A forward may write to any of them, so inside there are copies only.
    """
    changing = length_matters(getattr(model, "config", None))  # others are left alone: another thread may run them
    modules = [module for module in model.modules() if changing and hasattr(module, "original_max_seq_len")]
    before = [(module, dict(module.__dict__), dict(module._buffers)) for module in modules]
    for module in modules:
        _reset(module)
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            for name in set(module._buffers) - set(buffers):
                del module._buffers[name]
            module._buffers.update(buffers)
            for name in set(module.__dict__) - set(attributes):
                delattr(module, name)
            module.__dict__.update(attributes)


def _reset(module: nn.Module) -> None:
    for name in [each for each in vars(module) if each.endswith(_LENGTH)]:
        setattr(module, name, module.original_max_seq_len)
    for name, buffer in list(module._buffers.items()):
        if buffer is None:
            continue
        fresh: object = buffer
        if name.endswith(_FREQUENCIES) and _ORIGINAL not in name:
            fresh = getattr(module, f"{name.removesuffix(_FREQUENCIES)}{_ORIGINAL}{_FREQUENCIES}", buffer)
        module._buffers[name] = (fresh if isinstance(fresh, Tensor) else buffer).to(buffer, copy=True)
