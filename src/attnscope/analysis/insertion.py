"""What an insertion does to the tokens that were there before: it takes from all of them alike, and moves what is left.

Let b be what the shared tokens receive in the base prompt and c what they receive with the insertion. Dilution is one
factor, kept = sum(c) / sum(b): were it all, c would be kept * b. Redistribution is the rest: `moved` is half the sum
of |c / sum(c) - b / sum(b)|, the share of the remaining attention that sits on other tokens than before. There is one
factor for a query, so this is defined for the last token alone: in the mean over several queries, those that dilute
unequally would look like redistribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached
from attnscope.analysis.dense import dense, token_rows
from attnscope.analysis.received import Gaze, Heads, by_head, paired
from attnscope.analysis.run import Run
from attnscope.text.classes import OTHER, membership
from attnscope.text.segments import INSERTED, Span
from attnscope.text.tokens import Token

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Insertion:
    """(prompts, layers, heads) in each; NaN where the shared tokens receive nothing."""

    prompts: list[int]
    had: Numbers
    """What the shared tokens receive in the base prompt."""
    has: Numbers
    """What they receive with the insertion."""
    moved: Numbers
    taken: Numbers
    """The share of attention on inserted tokens."""

    @property
    def kept(self) -> Numbers:
        return self.has / self.had


@lru_cache(maxsize=16)
def insertion(run: Run, model: str, base: str, condition: str, queries: str) -> Insertion:
    """Every head of a model, prompt by prompt."""
    question = ("insertion", model, base, condition, queries)
    rows = cached(run, question, lambda: _insertion(run, model, base, condition, queries))
    prompts = sorted(run.prompts(model, base) & run.prompts(model, condition))
    axes: dict[str, Sequence[Any]] = {"prompt": prompts, "layer": run.layers(model), "head": run.heads(model)}
    return Insertion(prompts, *dense(rows, axes, _COLUMNS, f"{run.path}: insertion", nothing=True))


_COLUMNS = ("had", "has", "moved", "taken")


def _insertion(run: Run, model: str, base: str, condition: str, queries: str) -> pl.DataFrame:
    chosen = Heads(model, queries, run.layers(model), run.heads(model), over="all")
    prompts, parts = [], []
    for one, two in paired(run, chosen, base, condition):
        prompts.append(one.prompt)
        parts.append(_split(one, two))
    numbers = [np.stack(each).ravel() for each in zip(*parts, strict=True)] if parts else [np.zeros(0)] * 4
    return by_head(prompts, chosen, dict(zip(_COLUMNS, numbers, strict=True)))


def _split(one: Gaze, two: Gaze) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    shared, mine, others = np.intersect1d(one.base, two.base, return_indices=True)
    known = shared >= 0
    before, after = one.attention[..., mine[known]], two.attention[..., others[known]]
    had, has = before.sum(-1), after.sum(-1)
    there = (had > 0) & (has > 0)
    had, has = (np.where(there, each, np.nan) for each in (had, has))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(after / has[..., None] - before / had[..., None]).sum(-1) / 2
    return had, has, np.where(there, apart, np.nan), two.attention[..., two.inserted].sum(-1)


@lru_cache(maxsize=16)
def untouched_classes(run: Run, model: str, condition: str) -> list[str]:
    """Classes that no inserted token belongs to: what they lose or gain is a matter of shared tokens alone."""
    columns = ["position", "token_id", "text", "start", "end", "special"]
    rows = token_rows(run, model, condition, ["prompt", "segment", *columns])
    tokens = rows.partition_by("prompt", as_dict=True)
    names = [*run.study.rules, OTHER]
    touched = np.zeros(len(names), dtype=bool)
    for row in run.rows("prompts", model, condition, ["prompt", "text", "spans"]).iter_rows(named=True):
        held = tokens[row["prompt"],]
        made = [Token(*each) for each in held.select(columns).iter_rows()]
        shares = membership(run.study.rules, row["text"], made, [Span(**span) for span in row["spans"]])
        touched |= shares[:, (held["segment"] == INSERTED).to_numpy()].any(1)
    return [name for name, is_touched in zip(names, touched, strict=True) if not is_touched]
