"""The way in for models outside transformers' attention interface: their own eager attention, a layer at a time.

Some architectures (Falcon, BLOOM, MPT, GPT-J, GPT-Neo, ...) make their attention weights themselves. A small forward
with `output_attentions=True` shows which module made each layer's weights: the one that returned that very tensor.
From then on each of these modules is asked for its weights as it runs, and they are handed over and let go before the
next layer starts, so there is never more than one layer's matrix.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnscope.attention.call import MatrixCall
from attnscope.attention.edited_softmax import EditedSoftmax
from attnscope.attention.hooks import only_for
from attnscope.attention.interface import hears, hooks_kept, implementation, is_own
from attnscope.attention.seam import Edits
from attnscope.errors import AttnscopeError, Parameter


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
        stack.enter_context(implementation(model, "eager", threading.get_ident()))
        with hooks_kept(model):
            named = {} if getattr(model.config, "return_dict", True) else {"return_dict": True}
            outputs = model.base_model(**inputs, **named, output_attentions=True)
    weights = getattr(outputs, "attentions", None) or ()
    # inner modules return before outer ones do, so the first to return a tensor is the innermost
    return {layer: returned[id(each)][0][0] for layer, each in enumerate(weights) if id(each) in returned}


class MatrixListener(Protocol):
    """Is handed the attention weights of each layer."""

    layers: frozenset[int]
    exclusive: bool
    """Whether it belongs to the forward that runs, and is not around it."""
    thread: int | None
    """The only thread whose calls it hears; None for all threads."""

    @property
    def real(self) -> Tensor | None:
        """(B, keys): False at pads; None if there are none."""

    @property
    def edits(self) -> Edits:
        """What is changed in the layers."""

    def written(self, layer: int, queries: int) -> int | None:
        """How many of a layer's keys are written; None for all."""

    def attention(self, layer: int, call: MatrixCall) -> Tensor | None:
        """Reads a layer's weights; the model has computed its output already."""


@contextmanager
def opened_eagerly(model: PreTrainedModel, listener: MatrixListener, modules: EagerModules) -> Iterator[None]:
    """Inside, each wanted layer's weights go to the listener as soon as they are made."""
    layers_of: dict[int, list[int]] = {}
    for layer, eager in modules.items():  # some models run one module as every layer, in turn
        layers_of.setdefault(id(eager.module), []).append(layer)
    with ExitStack() as stack:
        for layers in layers_of.values():
            if not any(layer in listener.layers or listener.edits.touch(layer) for layer in layers):
                continue
            eager = modules[layers[0]]
            taker = _Taker(model, listener, layers, eager.place)
            stack.enter_context(_standing(eager.module, taker))
            editor = _Editor(taker)
            hooks = [
                model.base_model.register_forward_pre_hook(only_for([model.base_model], taker.begin)),
                eager.module.register_forward_pre_hook(only_for([eager.module], taker.ask), with_kwargs=True),
                eager.module.register_forward_pre_hook(only_for([eager.module], editor.begin)),
                eager.module.register_forward_hook(only_for([eager.module], editor.end), always_call=True),
                eager.module.register_forward_hook(only_for([eager.module], taker.take)),
            ]
            for hook in hooks:
                stack.callback(hook.remove)
        stack.enter_context(implementation(model, "eager", listener.thread))
        yield


_takers: dict[int, list[_Taker]] = {}
_lock = threading.Lock()


@contextmanager
def _standing(module: nn.Module, taker: _Taker) -> Iterator[None]:
    """Inside, the taker is one of those at the module, in the order of their hooks."""
    with _lock:
        _takers[id(module)] = [*_takers.get(id(module), []), taker]
    try:
        yield
    finally:
        with _lock:
            left = _takers[id(module)] = [each for each in _takers[id(module)] if each is not taker]
            if not left:
                del _takers[id(module)]


class _Taker:
    """Hands a module's weights over and lets them go. `layers`: those the module makes, in turn."""

    def __init__(self, model: PreTrainedModel, listener: MatrixListener, layers: list[int], place: int) -> None:
        self.model, self.listener, self.place = model, listener, place
        self.layers = layers
        self._here = threading.local()

    def begin(self, _module: nn.Module, _args: Any) -> None:
        """A forward begins, also after one that failed halfway: the module makes its first layer next."""
        self._here.turn = 0

    @property
    def layer(self) -> int:
        """The layer that the module makes next."""
        return self.layers[getattr(self._here, "turn", 0) % len(self.layers)]

    def ask(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        names = inspect.signature(module.forward).parameters
        if "output_attentions" in names and self.hears():
            place = list(names).index("output_attentions")
            if place < len(args):
                args = (*args[:place], True, *args[place + 1 :])
            else:
                kwargs = {**kwargs, "output_attentions": True}
        return args, kwargs

    def hears(self) -> bool:
        """Forwards of ours are for those who run them, not for a recording around them."""
        return hears(self.listener.thread) and (self.listener.exclusive or not is_own())

    def take(self, module: nn.Module, _args: Any, output: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self.hears():
            return output
        layer = self.layer
        self._here.turn = getattr(self._here, "turn", 0) + 1
        if layer in self.listener.layers:
            _refuse_dropout(module)
            with torch.no_grad():
                self.listener.attention(layer, self._call(layer, output[self.place].detach()))
        if _takers.get(id(module), [self])[-1] is not self:
            return output  # another one needs the weights too
        return (*output[: self.place], None, *output[self.place + 1 :])

    def _call(self, layer: int, weights: Tensor) -> MatrixCall:
        if weights.shape[3] < weights.shape[2]:
            raise NotImplementedError(f"{type(self.model).__name__} attends to a grid of its own, not to the tokens")
        weights = weights[..., : self.listener.written(layer, weights.shape[2])]
        return MatrixCall(weights, _visible(weights, _window(self.model, layer), self.listener.real))


class _Editor:
    """Changes the weights that a module makes, where it makes them: in its softmax."""

    def __init__(self, taker: _Taker) -> None:
        self.taker = taker
        self._here = threading.local()

    def begin(self, _module: nn.Module, _args: Any) -> None:
        """The module begins."""
        listener, layer = self.taker.listener, self.taker.layer
        if self.taker.hears() and listener.edits.touch(layer):
            self._here.softmax = EditedSoftmax(listener.edits, layer)
            self._here.softmax.__enter__()

    def end(self, module: nn.Module, _args: Any, _output: Any) -> None:
        """The module is over, also if it failed."""
        softmax, self._here.softmax = getattr(self._here, "softmax", None), None
        if softmax is not None:
            softmax.__exit__(None, None, None)
            if softmax.calls != 1 and sys.exc_info()[0] is None:
                raise AttnscopeError(
                    f"{type(module).__name__} can't be edited: it computes {softmax.calls} softmaxes",
                    where=Parameter("edits"),
                    allowed="models that compute each layer's weights by one softmax",
                    todo="choose another model",
                )


def _refuse_dropout(module: nn.Module) -> None:
    """What a module returns after dropout is not what it attended to."""
    if not module.training:
        return
    parts = {name: each.p for name, each in module.named_modules() if isinstance(each, nn.Dropout)}
    rates = parts | {name: each for name, each in vars(module).items() if "dropout" in name and isinstance(each, float)}
    for name, rate in rates.items():
        if rate > 0 and not name.startswith("resid"):
            raise AttnscopeError(
                f"{type(module).__name__} shows its attention weights only after dropout",
                where=f"{name}, {rate:g}",
                allowed="models in evaluation mode, or without dropout of attention",
                todo="call model.eval(), or set the dropout to 0",
            )


def _window(model: PreTrainedModel, layer: int) -> int | None:
    """GPT-Neo's local layers see this many keys back; the other architectures read this way see them all."""
    config = model.config
    kinds = getattr(config, "attention_layers", None)
    return config.window_size if kinds and kinds[layer] == "local" else None


def _visible(weights: Tensor, window: int | None, real: Tensor | None) -> Tensor:
    """(B or 1, 1, rows, keys): which keys each row sees.

    The weights don't show which keys are visible: one of zero may be a key that is seen but scored very low.
    """
    rows, keys = weights.shape[2:]
    back = torch.arange(keys - rows, keys, device=weights.device)[:, None] - torch.arange(keys, device=weights.device)
    counted = weights
    if real is not None:  # the rows of pads say nothing
        counted = weights.masked_fill(~real.to(weights.device)[:, None, -rows:, None], 0)
    causal = not bool(counted.amax((0, 1))[back < 0].any())
    seen = (back >= 0) if causal else torch.ones_like(back, dtype=torch.bool)  # (rows, keys)
    if window is not None:
        seen &= back < window
    return seen[None, None] if real is None else seen & real.to(seen.device)[:, None, None, :keys]
