"""The door into a model: transformers' attention interface, opened for a model and closed again.

A model that follows the interface asks a table for its attention function by the name in its config. While a door is
open, the functions that the table gives for `sdpa` and `eager` are ours: they hand the calls of opened models to their
listeners and every other call to the function that it was meant for. What is measured runs under the name `sdpa`; a
model that somebody else runs keeps its own of the two. A name of our own would do for most models, but some ask for the
name itself before they decide what goes into the mask (sparse attention does), and under an unknown one they leave it
out without a word. Functions that somebody registered, under a name of their own or in place of transformers' own, are
kept too, as they may compute anything; the call says so (`foreign`).

Doors belong to models: two models never see each other's calls. A listener hears whoever runs its model, or one thread
alone: what a lens measures must not be mixed with forwards that another thread happens to run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from attnscope.attention.call import Call
from attnscope.attention.device import input_device
from attnscope.attention.recorder import Own, plain_output
from attnscope.attention.rotary import fresh_rotary, length_matters
from attnscope.attention.turns import lock_of

SDPA, EAGER = "sdpa", "eager"
OTHERS = ("flex_attention", "flash_attention_", "paged|")  # how transformers' other names begin
IMPLEMENTATION = "_attn_implementation"  # of a config
TRANSFORMERS = str(Path(transformers.__file__).parent)

Attention = Callable[..., tuple[Tensor, Tensor | None]]
"""An attention function as transformers calls it; gives the output (B, Sq, H, Dv), and the weights if it makes them."""


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
        self.sdpa: Attention | None = None
        self.find: Callable[..., Attention] | None = None

    def open(self, modules: list[nn.Module], listener: Listener) -> None:
        with self.lock:
            if self.sdpa is None:
                table = AttentionInterface._global_mapping
                self.sdpa, self.find = table[SDPA], AttentionInterface.get_interface
                table[SDPA] = _Door(uncompiled(_attention), SDPA, self.sdpa)
                AttentionInterface.get_interface = uncompiled(_finder(self.find))  # type: ignore[method-assign]
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
            if not self.listeners and self.sdpa is not None:
                AttentionInterface._global_mapping[SDPA] = self.sdpa
                AttentionInterface.get_interface = self.find  # type: ignore[assignment]
                self.sdpa = self.find = None

    def of(self, module: nn.Module) -> list[Listener]:
        heard = [each for each in self.listeners.get(id(module), []) if hears(each.thread)]
        alone = [place for place, each in enumerate(heard) if each.exclusive]
        return heard[alone[-1] :] if alone else heard


_doors = _Doors()


class _Door(partial[Any]):
    """What stands in the place of an attention function."""


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled model leaves its graph for the function. Importing the compiler takes seconds: not without need."""
    if "torch._dynamo" not in sys.modules:
        return function
    disable: Callable[..., Any] = torch.compiler.disable
    wrapped: Callable[..., Any] = disable(function)
    return wrapped


def _finder(find: Callable[..., Attention]) -> Callable[..., Attention]:
    """In place of `AttentionInterface.get_interface`: eager attention is no entry of the table but each model's own."""
    door = uncompiled(_attention)

    def get_interface(self: AttentionInterface, attn_implementation: str, default: Attention) -> Attention:
        function = find(self, attn_implementation, default)
        kept = attn_implementation == EAGER or _is_foreign(attn_implementation, function)
        return _Door(door, attn_implementation, function) if kept else function

    return get_interface


def _attention(
    name: str,
    function: Attention,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **given: Any,
) -> tuple[Tensor, Tensor | None]:
    """function: what the model would call, were there no door; name: what its config calls that."""
    listeners, layer = _doors.of(module), getattr(module, "layer_idx", None)
    capped = given.get("softcap") is not None or given.get("s_aux") is not None
    switched = name == SDPA and capped and not _is_foreign(name, function)  # from eager, by a lens or a recording
    if not switched and (not listeners or layer is None):  # no layer: a vision or audio tower beside the text model
        return function(module, query, key, value, attention_mask, **given)
    call = _call(module, query, key, value, attention_mask, given)
    foreign = _is_foreign(name, function)
    if name == EAGER or foreign:
        call = replace(call, own_output=True, foreign=foreign, dropout=bool(given.get("dropout") and module.training))

    own: list[tuple[Tensor, Tensor | None]] = []

    def unheard() -> tuple[Tensor, Tensor | None]:
        if not own:  # once, whoever asks: dropout must not be drawn twice
            as_meant = call.native or name == EAGER or foreign
            result = function(module, query, key, value, attention_mask, **given) if as_meant else None
            own.append((_present(plain_output(call)), None) if result is None else result)
        return own[0]

    if layer is None:
        return unheard()
    outputs = [listener.attention(layer, call, lambda: unheard()[0]) for listener in listeners]
    output = next((each for each in outputs if each is not None), None)
    return unheard() if output is None or (own and output is own[0][0]) else (output, None)


def _present(output: Tensor | None) -> Tensor:
    assert output is not None  # noqa: S101  (a call with queries and keys has an output)
    return output


def _call(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, given: Mapping[str, Any]
) -> Call:
    is_causal, scaling = given.get("is_causal"), given.get("scaling")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    queries, keys = query.shape[2], key.shape[2]
    causal = bool(causal) and mask is None and queries > 1
    if causal and keys > queries:  # an empty static cache: the keys beyond are not written yet
        key, value = key[:, :, :queries], value[:, :, :queries]
    gradients = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    return Call(
        query=query,
        key=key,
        value=value,
        mask=mask,
        causal=causal,
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        softcap=given.get("softcap"),
        sinks=given.get("s_aux"),
        bias=given.get("position_bias"),
        window=given.get("sliding_window"),
        own_output=gradients or bool(given.get("dropout") and module.training),
    )


@contextmanager
def opened(model: nn.Module, listener: Listener, *, as_is: bool = False) -> Iterator[None]:
    """Inside, the model's attention calls go to the listener; after, all is as it was, whatever happened.

    as_is: the model keeps its own attention implementation, unless that is one of transformers' that takes no mask of
    what each query sees.
    """
    modules = list(model.modules())
    others = [config for config in _configs(model) if str(config._attn_implementation_internal).startswith(OTHERS)]
    with nullcontext() if as_is and not others else implementation(model, SDPA, listener.thread):
        _doors.open(modules, listener)
        try:
            yield
        finally:
            _doors.close(modules, listener)


def _is_foreign(name: str | None, function: object) -> bool:
    """Whether somebody registered the function, or the name: transformers makes no masks for names it doesn't know."""
    if isinstance(function, _Door) or name in (EAGER, None):
        return False
    known = name == SDPA or str(name).startswith(OTHERS)
    code = getattr(function, "__code__", None)  # a wrapper may have another's name and module, but not its code
    return not known or code is None or not code.co_filename.startswith(TRANSFORMERS)


def has_foreign_attention(model: nn.Module) -> bool:
    """Whether an attention function that somebody registered runs in the model."""
    for config in _configs(model):
        name = config._attn_implementation_internal
        function = ALL_ATTENTION_FUNCTIONS.get(name)
        if isinstance(function, _Door):
            function = _doors.sdpa
        if _is_foreign(name, function):
            return True
    return False


def hears(thread: int | None) -> bool:
    """Whether a listener of this thread hears the current one."""
    return thread is None or thread == threading.get_ident()


class _Names:
    """The attention implementation that each config seems to name, and to which thread; the configs are not changed.

    Whoever leaves takes away its own entry only, so it does not matter in which order they leave.
    """

    def __init__(self) -> None:
        self.inside: dict[int, list[tuple[object, str, int | None]]] = {}
        self.before: dict[type, property] = {}

    def enter(self, config: Any, owner: object, name: str, thread: int | None) -> None:
        if not self.inside.get(id(config)):
            cls = next(each for each in type(config).__mro__ if IMPLEMENTATION in vars(each))
            if cls not in self.before:
                self.before[cls] = vars(cls)[IMPLEMENTATION]
                setattr(cls, IMPLEMENTATION, _seeming(self.before[cls]))
        self.inside[id(config)] = [*self.inside.get(id(config), []), (owner, name, thread)]

    def leave(self, config: Any, owner: object) -> None:
        self.inside[id(config)] = [each for each in self.inside[id(config)] if each[0] is not owner]
        if not self.inside[id(config)]:
            del self.inside[id(config)]
        if not self.inside:
            for cls, before in self.before.items():
                setattr(cls, IMPLEMENTATION, before)
            self.before.clear()


_names = _Names()


def _seeming(before: property) -> property:
    def read(config: Any) -> Any:
        for _, name, thread in reversed(_names.inside.get(id(config), [])):
            if hears(thread):
                return name
        return before.__get__(config)

    return property(read, before.fset)


@contextmanager
def implementation(model: nn.Module, name: str, thread: int | None = None) -> Iterator[None]:
    """Inside, every config of the model seems to name this attention implementation; to a thread, or to all (None)."""
    configs = {id(config): config for config in _configs(model)}
    owner = object()
    with _doors.lock:
        for config in configs.values():
            _names.enter(config, owner, name, thread)
    try:
        yield
    finally:
        with _doors.lock:
            for config in configs.values():
                _names.leave(config, owner)


_own = threading.local()


def is_own() -> bool:
    """Whether this thread runs a forward of ours, which nobody who listens to the model wants to hear."""
    return getattr(_own, "depth", 0) > 0


_one_reading = threading.RLock()  # torch's thread count is changed and put back


@contextmanager
def quiet(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model doesn't train, computes no gradients, and its rotary positions are as freshly loaded."""
    with lock_of(model), _one_reading:
        modes = [module for module in model.modules() if module.training]
        device = input_device(model).type
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
    """Put back what a forward changes on the model itself: BigBird switches to full attention on a short text, and
    recurrent layers keep their state.
    """
    before = [(module, dict(vars(module)), dict(module._modules)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes, children in before:
            for key, value in attributes.items():
                now = vars(module).get(key)
                if isinstance(value, str | bool | int | float) and now != value:
                    setattr(module, key, value)
                elif isinstance(value, Tensor | None) and now is not value:
                    vars(module)[key] = value
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
