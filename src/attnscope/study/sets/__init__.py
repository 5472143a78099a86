"""Bundled sets of prompts. Each module here that has a `SET` is one, found by its presence."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attnscope.study.layout import Layouts


@dataclass(frozen=True)
class PromptSet:
    """make(count, seed, options) -> rows of fields; layouts: how they are put before a model by default."""

    name: str
    about: str
    layouts: Layouts
    make: Callable[[int, int, Mapping[str, Any]], list[dict[str, Any]]]


def prompt_sets() -> dict[str, PromptSet]:
    """Every bundled set, by name."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {each.SET.name: each.SET for each in modules if hasattr(each, "SET")}
