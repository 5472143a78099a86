"""What an insertion does to the other tokens: it dilutes them all by one factor, and redistributes the rest.

Let b be what the shared tokens receive in the base prompt and c what they receive with the insertion. Dilution is one
factor, kept = sum(c) / sum(b): if nothing else happened, c would be kept * b. Redistribution is the rest: `moved` is
half the sum of |c / sum(c) - b / sum(b)|, the share of the remaining attention that goes to other tokens than before.
Each query has its own factor, so this is defined for the last token only: in a mean over several queries, unequal
dilution would look like redistribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.dense import dense, token_rows
from attnscope.analysis.received import HeadChoice, PromptAttention, by_head, read_paired_attention
from attnscope.analysis.run import Run
from attnscope.text.classes import membership, removed_tokens, set_membership
from attnscope.text.segments import INSERTED, Span
from attnscope.text.tokens import Token

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Insertion:
    """Arrays of (prompts, layers, heads); NaN where the shared tokens receive nothing."""

    prompts: list[int]
    had: Floats
    """What the shared tokens receive in the base prompt."""
    has: Floats
    """What they receive with the insertion."""
    moved: Floats
    taken: Floats
    """The share of attention on inserted tokens."""

    @property
    def kept(self) -> Floats:
        return self.has / self.had


@lru_cache(maxsize=16)
def insertion(run: Run, model: str, base: str, condition: str, queries: str) -> Insertion:
    """The effect of an insertion on every head of a model, per prompt."""
    question = ("insertion", model, base, condition, queries)
    rows = cached_result(run, question, lambda: _insertion(run, model, base, condition, queries))
    prompts = sorted(run.having(model, base, queries) & run.having(model, condition, queries))
    axes: dict[str, Sequence[Any]] = {"prompt": prompts, "layer": run.layers(model), "head": run.heads(model)}
    return Insertion(prompts, *dense(rows, axes, _COLUMNS, f"{run.path}: insertion", missing=True))


_COLUMNS = ("had", "has", "moved", "taken")


def _insertion(run: Run, model: str, base: str, condition: str, queries: str) -> pl.DataFrame:
    chosen = HeadChoice(model, queries, run.layers(model), run.heads(model), over="all")
    prompts, parts = [], []
    for one, two in read_paired_attention(run, chosen, base, condition):
        prompts.append(one.prompt)
        parts.append(_split(one, two))
    numbers = [np.stack(each).ravel() for each in zip(*parts, strict=True)] if parts else [np.zeros(0)] * 4
    return by_head(prompts, chosen, dict(zip(_COLUMNS, numbers, strict=True)))


def _split(one: PromptAttention, two: PromptAttention) -> tuple[Floats, Floats, Floats, Floats]:
    shared, mine, others = np.intersect1d(one.base, two.base, return_indices=True)
    aligned = shared >= 0
    before, after = (
        np.nan_to_num(each) for each in (one.attention[..., mine[aligned]], two.attention[..., others[aligned]])
    )
    had, has = before.sum(-1), after.sum(-1)
    received = (had > 0) & (has > 0)
    had, has = (np.where(received, each, np.nan) for each in (had, has))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(after / has[..., None] - before / had[..., None]).sum(-1) / 2
    nothing_left = np.isnan(two.attention).all(-1)
    taken = np.where(nothing_left, np.nan, np.nan_to_num(two.attention[..., two.inserted]).sum(-1))
    return had, has, np.where(received, apart, np.nan), taken


def untouched_classes(run: Run, model: str, condition: str) -> list[str]:
    """Classes that no inserted token belongs to, so that only shared tokens can change their mass."""
    rows = class_tokens(run, model, condition)
    return rows.filter(pl.col("inserted") == 0)["token_class"].to_list()


@lru_cache(maxsize=16)
def class_tokens(run: Run, model: str, condition: str) -> pl.DataFrame:
    """token_class, tokens, inserted: how many tokens a class has in a prompt on average, and how many are inserted."""
    return cached_result(run, ("tokens of classes", model, condition), lambda: _class_tokens(run, model, condition))


def _class_tokens(run: Run, model: str, condition: str) -> pl.DataFrame:
    columns = ["position", "token_id", "text", "start", "end", "special"]
    rows = token_rows(run, model, condition, ["prompt", "segment", *columns])
    tokens = rows.partition_by("prompt", as_dict=True)
    names = run.token_sets
    counts = np.zeros((2, len(names)))
    prompts = run.rows("prompts", model, condition, ["prompt", "text", "spans"])
    for row in prompts.iter_rows(named=True):
        frame = tokens[row["prompt"],]
        prompt_tokens = [Token(*each) for each in frame.select(columns).iter_rows()]
        prompt = row["text"], prompt_tokens, [Span(**span) for span in row["spans"]]
        removed = removed_tokens(run.study.removed_rules, *prompt)
        sets = np.concatenate([membership(run.study.rules, *prompt), set_membership(run.study.set_rules, *prompt)])
        shares = np.concatenate([np.where(removed, 0.0, sets), removed[None]])[: len(names)]
        counts += shares.sum(1), shares[:, (frame["segment"] == INSERTED).to_numpy()].sum(1)
    every, inserted = counts / max(1, len(prompts))
    return pl.DataFrame({"token_class": names, "tokens": every, "inserted": inserted})
