"""The stack of a model's layers: forwards that begin at a layer, from what another forward gave to it.

What is changed in layer 20 changes nothing before it. So a prompt is run once as it is, what goes into a layer is kept,
and every variant of the prompt that is first changed in that layer begins there. Whether a model can be run like this
is tried out on a short text (`can_resume`): some layers hand on more than hidden states.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

Passed = Mapping[int, Any]
"""By number of a layer: what the layer before it gave, as that layer returned it."""


def stack_of(model: nn.Module, layers: int) -> list[nn.Module] | None:
    """The modules of a model's layers, in order; None if they are not found."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == layers:
            numbers = [{getattr(each, "layer_idx", None) for each in layer.modules()} for layer in module]
            if all(place in of_layer for place, of_layer in enumerate(numbers)):
                return list(module)
    return None


@contextmanager
def keeping(stack: Sequence[nn.Module], layers: Collection[int]) -> Iterator[dict[int, Any]]:
    """Inside, what goes into these layers (from the second on) is kept when this thread runs the model."""
    kept: dict[int, Any] = {}
    thread = threading.get_ident()

    def keep(layer: int) -> Callable[..., None]:
        def hook(_module: nn.Module, _given: Any, output: Any) -> None:
            if threading.get_ident() == thread:
                kept[layer] = output

        return hook

    handles = [stack[layer - 1].register_forward_hook(keep(layer)) for layer in layers if layer > 0]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def resumed(stack: Sequence[nn.Module], first: int, passed: Any, copies: int) -> Iterator[None]:
    """Inside, this thread's forwards of so many copies of a prompt begin at a layer.

    passed: what the layer before it gave for the prompt alone.
    """
    thread = threading.get_ident()
    given = _copied(passed, copies)

    def skipping(own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **options: Any) -> Any:
            return given if threading.get_ident() == thread else own(*args, **options)

        return forward

    before = [vars(layer).get("forward") for layer in stack[:first]]
    for layer in stack[:first]:
        layer.forward = skipping(layer.forward)
    try:
        yield
    finally:
        for layer, own in zip(stack[:first], before, strict=True):
            if own is None:
                del layer.forward
            else:
                layer.forward = own


def _copied(passed: Any, copies: int) -> Any:
    if isinstance(passed, Tensor):
        return passed.expand(copies, *passed.shape[1:]).contiguous()
    if isinstance(passed, tuple | list):
        return type(passed)(_copied(each, copies) for each in passed)
    return passed
