"""Short reasoning problems of many kinds, written for this project; see problems.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from random import Random
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.study.layout import Layout, Layouts
from attnscope.study.sets import PromptSet

INSTRUCTION = "Solve the problem. Think about it step by step, then give the answer in one line."


def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """So many of them, kinds mixed; the same seed gives the same order."""
    if options:
        raise AttnscopeError(
            f"problems has no option '{next(iter(options))}'",
            where="prompts.options",
            allowed="no options",
            todo="leave them out",
        )
    text = (files("attnscope.study.sets") / "problems.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    if count > len(rows):
        raise AttnscopeError(
            f"problems has no {count} problems",
            where="prompts.count",
            allowed=f"at most {len(rows)}",
            todo="ask for fewer",
        )
    Random(seed).shuffle(rows)  # noqa: S311
    return [{"instruction": INSTRUCTION, **row} for row in rows[:count]]


SET = PromptSet(
    name="problems",
    about="short reasoning problems of many kinds",
    layouts=Layouts(
        chat=Layout((("user", "{instruction}\n\n{question}"),)),
        plain=Layout(((None, "{instruction}\n\n{question}"),)),
    ),
    make=make,
)
