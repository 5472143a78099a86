"""Bundled sets of prompts. Each module here that has a `SET` is one, found by its presence."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.text.layout import Layouts


@dataclass(frozen=True)
class PromptSet:
    """make(count, seed, options) -> rows of fields; layouts: how they are put before a model by default."""

    name: str
    about: str
    layouts: Layouts
    make: Callable[[int, int, Mapping[str, Any]], list[dict[str, Any]]]


def shuffled_file(name: str, **fields: str) -> Callable[[int, int, Mapping[str, Any]], list[dict[str, Any]]]:
    """`make` for a set that is a file beside these modules: its rows in an order the seed gives, each with `fields`."""

    def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        if options:
            raise AttnscopeError(
                f"{name} has no option '{next(iter(options))}'",
                where="prompts.options",
                allowed="no options",
                todo="leave them out",
            )
        text = (files(__name__) / f"{name}.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        if count > len(rows):
            raise AttnscopeError(
                f"the set {name} does not have {count} prompts",
                where="prompts.count",
                allowed=f"at most {len(rows)}",
                todo="ask for fewer",
            )
        Random(seed).shuffle(rows)  # noqa: S311
        return [{**fields, **row} for row in rows[:count]]

    return make


def prompt_sets() -> dict[str, PromptSet]:
    """Every bundled set, by name."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {each.SET.name: each.SET for each in modules if hasattr(each, "SET")}
