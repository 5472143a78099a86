"""Needles in a haystack: an invented fact among paragraphs about everyday things, and a question that asks for it.

Written for this project; see needles.jsonl and paragraphs.jsonl. The haystack is a list. Each of its quarters has one
item per length, the longest first: the paragraphs that only prompts of that length have, with the length as their
role. So a condition makes a prompt shorter by deleting, `delete: haystack[role=96]`, and one that moves the needle
(role needle) to the end of a quarter changes its depth: the same needle can be compared with itself at any length and
depth. Within a prompt no paragraph occurs twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from attnscope.errors import AttnscopeError, near
from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, drawn, stored_rows

NAME = "needles"
QUARTERS = 4
DEPTHS = (0, 0.25, 0.5, 0.75, 1)
OPTIONS: dict[str, Any] = {
    "lengths": [24],  # in paragraphs of about 70 words, 84 tokens
    "depth": 0.5,
}


def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`count` prompts, each with a needle of its own; needles of one kind come as far apart as possible."""
    chosen = {**OPTIONS, **options}
    paragraphs = [row["paragraph"] for row in stored_rows("paragraphs")]
    _refuse_wrong(options, chosen, len(paragraphs))
    needles = stored_rows(NAME)
    drawn(NAME, needles, count, seed)  # refuses a count that is too large
    mixed = _mixed(needles, seed)[:count]
    return [_prompt(needle, paragraphs, chosen, Random(f"{seed}:{needle['needle']}")) for needle in mixed]  # noqa: S311


def _mixed(needles: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """All needles, one of each kind before the second of any."""
    shuffled = drawn(NAME, needles, len(needles), seed)
    seen: dict[str, int] = {}
    turns = []
    for needle in shuffled:
        turns.append(seen.get(needle["kind"], 0))
        seen[needle["kind"]] = turns[-1] + 1
    return [shuffled[place] for place in sorted(range(len(shuffled)), key=lambda place: turns[place])]


def _prompt(needle: Mapping[str, str], paragraphs: list[str], chosen: Mapping[str, Any], rng: Random) -> dict[str, Any]:
    pool = iter(rng.sample(paragraphs, max(chosen["lengths"])))
    lengths = sorted(chosen["lengths"], reverse=True)
    items: list[dict[str, str]] = []
    for quarter in range(QUARTERS + 1):
        if quarter == chosen["depth"] * QUARTERS:
            items.append({"text": needle["needle"], "role": "needle"})
        for length, shorter in zip(lengths, [*lengths[1:], 0], strict=True):
            own = [next(pool) for _ in range((length - shorter) // QUARTERS)] if quarter < QUARTERS else []
            if own:
                items.append({"text": "\n\n".join(own), "role": str(length)})
    return {"kind": needle["kind"], "haystack": items, "question": needle["question"], "answer": needle["answer"]}


def _refuse_wrong(options: Mapping[str, Any], chosen: Mapping[str, Any], most: int) -> None:
    for key in options:
        if key not in OPTIONS:
            raise _wrong(f"{NAME} has no option '{key}'", near(str(key), OPTIONS))
    lengths, depth = chosen["lengths"], chosen["depth"]
    possible = range(QUARTERS, most + 1, QUARTERS)
    whole = isinstance(lengths, list) and all(type(each) is int and each in possible for each in lengths)
    if not whole or not lengths or len(set(lengths)) < len(lengths):
        what = f"a haystack of {NAME} can't have {lengths!r} paragraphs"
        raise _wrong(what, f"different multiples of {QUARTERS} up to {most}, such as [4, 24, {most}]")
    if isinstance(depth, bool) or depth not in DEPTHS:
        raise _wrong(f"{depth!r} is not a depth of {NAME}", "one of " + ", ".join(map(str, DEPTHS)))


def _wrong(what: str, allowed: str) -> AttnscopeError:
    return AttnscopeError(what, where="prompts.options", allowed=allowed, todo="fix the study file")


SET = PromptSet(
    name=NAME,
    about="invented facts, each hidden (role `needle`) in a haystack of paragraphs about everyday things, with a "
    "question and the `answer`; options `lengths` (in paragraphs, as in [4, 24, 96]) and `depth` (0, 0.25, 0.5, 0.75 "
    "or 1)",
    layouts=Layouts(
        chat=Layout((("user", "{haystack}\n\nQuestion: {question}"),)),
        plain=Layout(((None, "{haystack}\n\nQuestion: {question}\n\nAnswer:\n"),)),
    ),
    make=make,
)
