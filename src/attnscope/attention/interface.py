"""The door into a model: transformers' attention interface, opened for a model and closed again.

A model that follows the interface asks a table for its attention function by the name in its config. While a door is
open that name is `sdpa`, and the table's `sdpa` is our function, which hands the calls of opened models to their
listeners and every other call to the function that was there before. A name of our own would do for most models, but
some ask for the name itself before they decide what goes into the mask (sparse attention does), and under an unknown
one they leave it out without a word.

Doors belong to models: two models never see each other's calls. A listener hears whoever runs its model, or one thread
alone: what a lens measures must not be mixed with forwards that another thread happens to run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from attnscope.attention.call import Call
from attnscope.attention.recorder import Own, plain_output
from attnscope.attention.rotary import fresh_rotary, length_matters

NAME = "sdpa"


class Listener(Protocol):
    """Is handed an opened model's attention calls."""

    exclusive: bool
    """Whether listeners that were there before don't hear these calls."""
    thread: int | None
    """The only thread whose calls it hears; None for all threads."""

    def attention(self, layer: int, call: Call, own: Own | None) -> Tensor | None:
        """The output (B, Sq, H, Dv) the model goes on with; None to leave it to others."""


class _Doors:
    """Which models are open. The table and the list belong to the whole process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: dict[int, list[Listener]] = {}
        self.before: Callable[..., Any] | None = None

    def open(self, modules: list[nn.Module], listener: Listener) -> None:
        with self.lock:
            table = AttentionInterface._global_mapping
            if self.before is None:
                self.before = table[NAME]
                table[NAME] = uncompiled(_attention)
            for module in modules:
                self.listeners[id(module)] = [*self.listeners.get(id(module), []), listener]

    def close(self, modules: list[nn.Module], listener: Listener) -> None:
        with self.lock:
            for module in modules:
                left = [each for each in self.listeners.get(id(module), []) if each is not listener]
                if left:
                    self.listeners[id(module)] = left
                else:
                    self.listeners.pop(id(module), None)
            if not self.listeners and self.before is not None:
                AttentionInterface._global_mapping[NAME] = self.before
                self.before = None

    def of(self, module: nn.Module) -> list[Listener]:
        heard = [each for each in self.listeners.get(id(module), []) if hears(each.thread)]
        alone = [place for place, each in enumerate(heard) if each.exclusive]
        return heard[alone[-1] :] if alone else heard


_doors = _Doors()


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled model leaves its graph for the function. Importing the compiler takes seconds: not without need."""
    if "torch._dynamo" not in sys.modules:
        return function
    disable: Callable[..., Any] = torch.compiler.disable
    wrapped: Callable[..., Any] = disable(function)
    return wrapped


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
    dropout: float = 0.0,
    **rest: Any,
) -> tuple[Tensor, None]:
    listeners = _doors.of(module)
    before, layer = _doors.before, getattr(module, "layer_idx", None)

    def original() -> Tensor:
        assert before is not None  # noqa: S101  (the door is open)
        more = {"is_causal": is_causal, "position_bias": position_bias, "sliding_window": sliding_window, **rest}
        output: Tensor = before(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more)[0]
        return output

    if not listeners and softcap is None and s_aux is None:  # a model that nobody listens to
        return original(), None
    call = _call(module, query, key, value, attention_mask, scaling, is_causal)
    gradients = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    call = replace(
        call,
        softcap=softcap,
        sinks=s_aux,
        bias=position_bias,
        window=sliding_window,
        own_output=gradients or (dropout > 0 and module.training),
    )

    def own() -> Tensor:
        return original() if call.native else _present(plain_output(call))

    if not listeners or layer is None:  # no layer: a vision or audio tower beside the text model
        return own(), None
    output = None
    for listener in listeners:
        heard = listener.attention(layer, call, own)
        output = heard if output is None else output
    return own() if output is None else output, None


def _present(output: Tensor | None) -> Tensor:
    assert output is not None  # noqa: S101  (a call with queries and keys has an output)
    return output


def _call(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    is_causal: bool | None,
) -> Call:
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    queries, keys = query.shape[2], key.shape[2]
    causal = bool(causal) and mask is None and queries > 1
    if causal and keys > queries:  # an empty static cache: the keys beyond are not written yet
        key, value = key[:, :, :queries], value[:, :, :queries]
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    return Call(query=query, key=key, value=value, mask=mask, causal=causal, scale=scale)


@contextmanager
def opened(model: nn.Module, listener: Listener) -> Iterator[None]:
    """Inside, the model's attention calls go to the listener; after, all is as it was, whatever happened."""
    modules = list(model.modules())
    with implementation(model, NAME):
        _doors.open(modules, listener)
        try:
            yield
        finally:
            _doors.close(modules, listener)


def hears(thread: int | None) -> bool:
    """Whether a listener of this thread hears the current one."""
    return thread is None or thread == threading.get_ident()


class _Settings:
    """What each config names as its attention implementation: its own, below those set by whoever is inside.

    Whoever leaves takes away its own setting only, so it does not matter in which order they leave.
    """

    def __init__(self) -> None:
        self.names: dict[int, list[tuple[object, str]]] = {}

    def set(self, config: Any, owner: object, name: str) -> None:
        self.names.setdefault(id(config), [(None, config._attn_implementation_internal)]).append((owner, name))
        config._attn_implementation_internal = name

    def take_back(self, config: Any, owner: object) -> None:
        left = self.names[id(config)] = [each for each in self.names[id(config)] if each[0] is not owner]
        config._attn_implementation_internal = left[-1][1]
        if len(left) == 1:
            del self.names[id(config)]


_settings = _Settings()


@contextmanager
def implementation(model: nn.Module, name: str) -> Iterator[None]:
    """Inside, every config of the model names this attention implementation."""
    configs = {id(config): config for config in _configs(model)}
    owner = object()
    with _doors.lock:
        for config in configs.values():
            _settings.set(config, owner, name)
    try:
        yield
    finally:
        with _doors.lock:
            for config in configs.values():
                _settings.take_back(config, owner)


_own = threading.local()


def is_own() -> bool:
    """Whether this thread runs a forward of ours, which nobody who listens to the model wants to hear."""
    return getattr(_own, "depth", 0) > 0


_one_reading = threading.RLock()  # training modes, rotary buffers and torch's thread count are changed and put back


@contextmanager
def quiet(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model doesn't train, computes no gradients, and its rotary positions are as freshly loaded."""
    with _one_reading:
        modes = [module for module in model.modules() if module.training]
        device = next(model.parameters()).device.type
        _own.depth = getattr(_own, "depth", 0) + 1
        try:
            for module in modes:
                module.training = False
            inference = torch.inference_mode(not length_matters(model.config))
            with inference, torch.no_grad(), torch.autocast(device, enabled=False), fresh_rotary(model):
                yield
        finally:
            _own.depth -= 1
            for module in modes:
                module.training = True


@contextmanager
def settings_kept(model: nn.Module) -> Iterator[None]:
    """Put back what a forward changes on the model itself: BigBird switches to full attention on a short text."""
    before = [(module, dict(vars(module)), dict(module._modules)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes, children in before:
            for key, value in attributes.items():
                if isinstance(value, str | bool | int | float) and vars(module).get(key) != value:
                    setattr(module, key, value)
            for key, child in children.items():
                if module._modules.get(key) is not child:
                    module._modules[key] = child


@contextmanager
def hooks_kept(model: nn.Module) -> Iterator[None]:
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


def _configs(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            yield config
