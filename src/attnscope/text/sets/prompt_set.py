"""What a set of prompts declares."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
    default: int = 40
    """How many prompts a study gets that does not say how many."""


def stored_rows(name: str, package: str = "attnscope.text.sets") -> list[dict[str, Any]]:
    """The rows of NAME.jsonl in a package, in its order."""
    text = (files(package) / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def refuse_options(name: str, options: Mapping[str, Any]) -> None:
    """For a set without options."""
    if options:
        raise AttnscopeError(
            f"{name} has no option '{next(iter(options))}'",
            where="prompts.options",
            allowed="no options",
            todo="leave them out",
        )


def drawn(name: str, rows: Sequence[dict[str, Any]], count: int, seed: int) -> list[dict[str, Any]]:
    """So many of a set's rows, in an order that depends on the seed."""
    if count > len(rows):
        raise AttnscopeError(
            f"the set {name} does not have {count} prompts",
            where="prompts.count",
            allowed=f"at most {len(rows)}",
            todo="ask for fewer",
        )
    shuffled = list(rows)
    Random(seed).shuffle(shuffled)  # noqa: S311
    return shuffled[:count]


def shuffled_file(name: str, package: str = "attnscope.text.sets", **fields: str) -> Make:
    """`make` for a set that is NAME.jsonl in a package: its rows shuffled by the seed, each with `fields` added."""

    def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        refuse_options(name, options)
        return [{**fields, **row} for row in drawn(name, stored_rows(name, package), count, seed)]

    return make
