"""A set of prompts: sums of two numbers."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets import PromptSet


def _make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    chance = Random(seed)
    pairs = [(chance.randint(1, 99), chance.randint(1, 99)) for _ in range(count)]
    return [{"instruction": "Add up.", "sum": f"{one} + {two} =", "answer": f"{one + two}"} for one, two in pairs]


SUMS = PromptSet(
    name="sums",
    about="sums of two numbers",
    layouts=Layouts(plain=Layout(((None, "{instruction} {sum}"),))),
    make=_make,
)
