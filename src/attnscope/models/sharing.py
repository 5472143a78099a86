"""Models loaded one after another: a base that several adapters share is read once, and adapters take turns on it.

Merging an adapter changes the base's weights. So the weights that it is about to change are copied first, and put back
before the next one: subtracting what was added would leave rounding behind. Whether the base is back, bit for bit, is
checked; if not, it is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from attnscope.models.adapters import apply_adapter, bit_sums
from attnscope.models.load import Description, Loaded, known_dtype, load, loaded_as, look_up
from attnscope.models.load import read_base as read_base
from attnscope.models.memory import free_memory, shortage_explained

SPARE = 2  # times the size of a model that must be free for the copies of its weights


class _AsRead:
    """What a model was like before an adapter was put on it."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.attributes = [(module, _copied(vars(module))) for module in model.modules()]
        configs = (model.config, model.config.get_text_config())
        self.tied = [(config, getattr(config, "tie_word_embeddings", None)) for config in configs]
        self.gradients = [(weight, weight.requires_grad) for weight in model.parameters()]
        self.sums = bit_sums(model)
        self.changed: list[tuple[nn.Parameter, torch.Tensor]] = []

    def copy(self, weights: Sequence[nn.Parameter]) -> None:
        self.changed = [(weight, weight.detach().clone()) for weight in dict.fromkeys(weights)]

    def put_back(self) -> bool:
        """Make the model what it was; says whether it is, bit for bit."""
        for module, attributes in self.attributes:
            vars(module).clear()
            vars(module).update(_copied(attributes))
        with torch.no_grad():
            for weight, before in self.changed:
                weight.copy_(before)
        for config, tied in self.tied:
            config.tie_word_embeddings = tied
        for weight, needed in self.gradients:
            weight.requires_grad_(needed)
        return bit_sums(self.model) == self.sums


@dataclass
class _Base:
    """A model in memory, with at most one adapter on it."""

    key: tuple[Any, ...]
    model: PreTrainedModel
    before: _AsRead | None = None
    """Before the adapter that is on it; None if there is none."""

    def put_on(self, folder: Path, name: str) -> PreTrainedModel:
        self.before = _AsRead(self.model)
        return apply_adapter(self.model, folder, name=name, about_to_change=self.before.copy)

    def take_off(self) -> bool:
        """Whether the model is as it was read."""
        before, self.before = self.before, None
        return before is None or before.put_back()


class SharedLoader:
    """Loads models as `load` does. Only the last one it gave can be used: the next may be made from it."""

    def __init__(self) -> None:
        self._held: _Base | None = None

    def load(
        self,
        name: str | Path,
        *,
        dtype: str | None = None,
        device_map: str | dict[str, Any] | None = None,
        trust_remote_code: bool = False,
        allow_pickle: bool = False,
        **options: Any,
    ) -> Loaded:
        """options: the others of `load`."""
        allowed: dict[str, Any] = {"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
        if device_map is not None:
            self._held = None
            return load(name, dtype=dtype, device_map=device_map, **allowed, **options)
        known_dtype(dtype)
        described = look_up(name, **allowed, **options)
        base = self._base(described, dtype, allowed)
        folder = described.adapter_folder
        if folder is None:
            return loaded_as(described, base.model, allow_pickle=allow_pickle)
        with shortage_explained(described.name):
            if _has_room(base.model):
                model = base.put_on(folder, described.name)
            else:
                self._held = None
                model = apply_adapter(base.model, folder, name=described.name)
        return loaded_as(described, model, allow_pickle=allow_pickle)

    def _base(self, described: Description, dtype: str | None, allowed: dict[str, Any]) -> _Base:
        """The base of a model, without an adapter on it: the one at hand, or read anew."""
        key = (described.path.absolute(), described.device, *allowed.values(), _state_of(described.path))
        held, self._held = self._held, None  # nothing is held while another model is read
        fits = held is not None and held.key == key and dtype in (None, _dtype(held.model))
        if held is not None and fits and held.take_off():
            self._held = held
            return held
        del held
        model = read_base(described, dtype=dtype, device_map=None, **allowed)
        self._held = _Base(key, model)
        return self._held


def _dtype(model: PreTrainedModel) -> str:
    return str(model.dtype).removeprefix("torch.")


def _state_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Changes when a file of a model is written again."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def _has_room(model: PreTrainedModel) -> bool:
    """Whether copies of all weights would fit beside them."""
    needed = sum(weight.numel() * weight.itemsize for weight in model.parameters())
    return SPARE * needed <= free_memory(next(model.parameters()).device)


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """What a module holds; its tables of children, weights and hooks as copies."""
    return {name: value.copy() if type(value) in _TABLES else value for name, value in attributes.items()}


_TABLES = (dict, set, type(nn.Module()._forward_hooks))
