"""Why a class of a run has no token that the queries see."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.dense import token_rows
from attnscope.analysis.run import Run
from attnscope.analysis.sides import empty_classes
from attnscope.text.classes import membership, set_membership
from attnscope.text.segments import Span
from attnscope.text.tokens import Token

WHY = (
    "its rule matches nothing",
    "earlier classes claim all of its tokens",
    "'without' leaves out all of its tokens",
    "all of its tokens come after the queries, or out of their reach",
)
"""The first of these steps that leaves a class without tokens, in all prompts."""


def empty_in_words(run: Run) -> dict[str, str]:
    """Each class without a token that any query sees, and why."""
    names = empty_classes(run)
    if not names:
        return {}
    left = np.zeros((len(names), len(WHY) - 1), dtype=bool)
    for model in run.models:
        for condition in run.conditions:
            left |= _left(run, names, model, condition)
    return {name: WHY[int(steps.sum())] for name, steps in zip(names, left, strict=True)}


def _left(run: Run, names: list[str], model: str, condition: str) -> NDArray[np.bool_]:
    """(names, steps): whether the class still has a token in some prompt after each step."""
    columns = ["position", "token_id", "text", "start", "end", "special"]
    tokens = token_rows(run, model, condition, ["prompt", *columns, "removed"]).partition_by("prompt", as_dict=True)
    rules, sets = run.study.rules, run.study.set_rules
    places = [run.token_sets.index(name) for name in names]
    left = np.zeros((len(names), len(WHY) - 1), dtype=bool)
    for row in run.rows("prompts", model, condition, ["prompt", "text", "spans"]).iter_rows(named=True):
        frame = tokens[row["prompt"],]
        own = [Token(*each) for each in frame.select(columns).iter_rows()]
        prompt = row["text"], own, [Span(**span) for span in row["spans"]]
        alone = set_membership({name: {**rules, **sets}[name] for name in names}, *prompt) > 0
        claimed = np.concatenate([membership(rules, *prompt), set_membership(sets, *prompt)])[places] > 0
        rest = claimed & ~frame["removed"].to_numpy()
        left |= np.stack([each.any(1) for each in (alone, claimed, rest)], 1)
    return left
