"""Hooks that belong to certain modules, and not to copies of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def only_for(modules: list[nn.Module], method: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that runs for these modules alone.

    Copying a model copies its hooks: a method with all it belongs to, a function not at all.
    """

    def hook(module: nn.Module, *given: Any) -> Any:
        return method(module, *given) if any(module is each for each in modules) else None

    return hook
