"""What a set of prompts declares."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.text.layout import Layouts

Make = Callable[[int, int, Mapping[str, Any]], list[dict[str, Any]]]
"""(count, seed, options) -> rows of fields. The same seed gives the same rows."""


@dataclass(frozen=True)
class PromptSet:
    """A named set of prompts."""

    name: str
    about: str
    """A few words for docs."""
    layouts: Layouts
    """How they are laid out, unless the study has its own layout."""
    make: Make
    cluster: str | None = None
    """The field of its rows that says which prompts are of one kind, and so not independent."""


def shuffled_file(name: str, package: str = "attnscope.text.sets", **fields: str) -> Make:
    """`make` for a set that is NAME.jsonl in a package: its rows shuffled by the seed, each with `fields` added."""

    def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        if options:
            raise AttnscopeError(
                f"{name} has no option '{next(iter(options))}'",
                where="prompts.options",
                allowed="no options",
                todo="leave them out",
            )
        text = (files(package) / f"{name}.jsonl").read_text(encoding="utf-8")
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
