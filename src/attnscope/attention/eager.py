"""The way in for models outside transformers' attention interface: their own eager attention, a layer at a time.

Some architectures (Falcon, BLOOM, MPT, GPT-J, GPT-Neo, ...) make their attention weights themselves. A small forward
with `output_attentions=True` shows which module made each layer's weights: the one that returned that very tensor.
From then on each of these modules is asked for its weights as it runs, and they are reduced and let go before the
next layer starts, so there is never more than one layer's matrix.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnscope.attention.interface import hooks_kept, implementation
from attnscope.attention.patterns import Pairs
from attnscope.attention.recorder import EnoughError, Recorder
from attnscope.attention.walk import pair_sums
from attnscope.measures.patterns import PATTERNS


@dataclass(frozen=True)
class EagerModule:
    """A module that returns a layer's attention weights, and where in its outputs they stand."""

    module: nn.Module
    place: int


EagerModules = dict[int, EagerModule]


def find_modules(model: PreTrainedModel, inputs: dict[str, Any]) -> EagerModules:
    """By layer, the innermost module that returns its attention weights; empty where the model gives none."""
    returned: dict[int, list[tuple[EagerModule, Tensor]]] = {}

    def note(module: nn.Module, _args: Any, output: Any) -> None:
        for place, part in enumerate(output if isinstance(output, tuple) else ()):
            if isinstance(part, Tensor) and part.dim() == 4:
                returned.setdefault(id(part), []).append((EagerModule(module, place), part))

    with ExitStack() as stack:
        for module in model.modules():
            handle = module.register_forward_hook(note)
            stack.callback(handle.remove)
        stack.enter_context(implementation(model, "eager"))
        with hooks_kept(model):
            outputs = model.base_model(**inputs, output_attentions=True)
    weights = getattr(outputs, "attentions", None) or ()
    # inner modules return before outer ones do, so the first to return a tensor is the innermost
    return {layer: returned[id(each)][0][0] for layer, each in enumerate(weights) if id(each) in returned}


@contextmanager
def recorded_eagerly(model: PreTrainedModel, recorder: Recorder, modules: EagerModules) -> Iterator[None]:
    """Inside, each wanted layer's weights are reduced into `recorder` as soon as they are made."""
    layers_of: dict[int, list[int]] = {}
    for layer, found in modules.items():  # some models run one module as every layer, in turn
        layers_of.setdefault(id(found.module), []).append(layer)
    with ExitStack() as stack:
        for layers in layers_of.values():
            if not recorder.layers & set(layers):
                continue
            found = modules[layers[0]]
            asks = found.module.register_forward_pre_hook(_ask_for_weights, with_kwargs=True)
            stack.callback(asks.remove)
            takes = found.module.register_forward_hook(_Taker(model, recorder, layers, found.place))
            stack.callback(takes.remove)
        stack.enter_context(implementation(model, "eager"))
        yield


def _ask_for_weights(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    names = inspect.signature(module.forward).parameters
    if "output_attentions" in names:
        place = list(names).index("output_attentions")
        if place < len(args):
            args = (*args[:place], True, *args[place + 1 :])
        else:
            kwargs = {**kwargs, "output_attentions": True}
    return args, kwargs


class _Taker:
    """A hook that reduces a module's weights and lets them go. `layers`: those the module makes, in turn."""

    def __init__(self, model: PreTrainedModel, recorder: Recorder, layers: list[int], place: int) -> None:
        self.model, self.recorder, self.place = model, recorder, place
        self.turns = iter(layers)

    def __call__(self, _module: nn.Module, _args: Any, output: tuple[Any, ...]) -> tuple[Any, ...]:
        layer = next(self.turns, None)
        if layer is not None:
            self.recorder.calls[layer] += 1
            if layer in self.recorder.layers:
                self._reduce(layer, output[self.place])
        return (*output[: self.place], None, *output[self.place + 1 :])

    def _reduce(self, layer: int, made: Tensor) -> None:
        recorder = self.recorder
        weights = made.to(torch.promote_types(made.dtype, torch.float32))  # (B, H, Sq, Sk)
        shares = recorder.weights.to(weights.device, weights.dtype)  # (B, m, Sq)
        if weights.shape[2] != shares.shape[2] or weights.shape[3] < shares.shape[2]:
            raise NotImplementedError(f"{type(self.model).__name__} attends to a grid of its own, not to the tokens")
        recorder.masks[layer] = "eager"
        recorder.received[layer] = shares[:, None] @ weights
        visible = _visible(weights, shares, _window(self.model, layer), recorder.real)
        seen = visible.to(shares.dtype)
        recorder.uniform[layer] = (shares[:, None] / visible.sum(-1).clamp(min=1)[:, :, None]) @ seen
        recorder.seen[layer] = shares[:, None] @ seen
        if recorder.entropy:
            share = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
            entropy = -torch.xlogy(share, share).sum(-1)  # (B, H, Sq)
            recorder.entropies[layer] = entropy @ shares.transpose(1, 2)
        if recorder.pairs is not None:
            recorder.patterns[layer] = _patterns(weights, visible, shares, recorder.pairs)
        if recorder.stop and layer == max(recorder.layers):
            raise EnoughError


def _patterns(weights: Tensor, visible: Tensor, shares: Tensor, pairs: list[Pairs]) -> Tensor:
    """As the recorder keeps them."""
    batch, heads = weights.shape[:2]
    found = weights.new_zeros(batch, heads, len(PATTERNS), shares.shape[1], 3)
    seen = visible.to(weights.dtype).expand(batch, -1, -1, -1)  # (B, heads or 1, rows, keys)
    for prompt, each in enumerate(pairs):
        held = each.to(weights.device)
        given, share = (held.queries, held.keys, held.patterns), shares[prompt].t()
        found[prompt, ..., 0] = pair_sums(weights[prompt], given, len(PATTERNS), 0, 0) @ share
        sums = pair_sums(seen[prompt], given, len(PATTERNS), 0, 0)
        found[prompt, ..., 1] = (sums / seen[prompt].sum(-1).clamp(min=1)[:, None]) @ share
        found[prompt, ..., 2] = (sums > 0).to(share.dtype) @ share
    return found


def _window(model: PreTrainedModel, layer: int) -> int | None:
    """GPT-Neo's local layers see this many keys back; the other architectures read this way see them all."""
    config = model.config
    kinds = getattr(config, "attention_layers", None)
    return config.window_size if kinds and kinds[layer] == "local" else None


def _visible(weights: Tensor, shares: Tensor, window: int | None, real: Tensor | None) -> Tensor:
    """(B or 1, 1, rows, keys): which keys each row sees.

    The weights don't tell which keys are visible: one of zero may be a key that is seen but scored very low.
    """
    rows, keys = weights.shape[2:]
    back = torch.arange(keys - rows, keys, device=weights.device)[:, None] - torch.arange(keys, device=weights.device)
    ahead = (shares.sum(1)[:, None, :, None] * weights).amax((0, 1))[back < 0]  # of rows that are not pads
    causal = not bool(ahead.any())
    seen = (back >= 0) if causal else torch.ones_like(back, dtype=torch.bool)  # (rows, keys)
    if window is not None:
        seen &= back < window
    return seen[None, None] if real is None else seen & real.to(seen.device)[:, None, None, :keys]
