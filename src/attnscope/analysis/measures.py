"""What a map of heads can show, by name: one number a prompt, layer and head of an side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.head_kinds import scores
from attnscope.analysis.insertion import insertion
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, base_condition, enrichment_of, masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError, near
from attnscope.measures.names import ENTROPY, KEPT, MOVED, OF_INSERTIONS, SCORES, TAKEN

Numbers = NDArray[np.float64]

WORDS = {
    ENTROPY: "entropy (nats)",
    "sink": "attention on the first token",
    "previous": "attention on the token before",
    "next": "attention on the token after",
    "repeated": "attention on earlier tokens of the same kind",
    "induction": "attention on what followed them",
    "local": "attention on the last 8 tokens",
    "uniform": "likeness to a uniform gaze",
    KEPT: "share of attention that shared tokens keep",
    MOVED: "share of what is left that moved to other tokens",
    TAKEN: "attention on inserted tokens",
}


@dataclass(frozen=True)
class Measured:
    """(prompts, layers, heads); NaN where a prompt can't show it. per_mass: see `arms.Values`."""

    prompts: NDArray[np.int64]
    values: Numbers
    per_mass: Numbers | None = None


def measured(side: Side, queries: str, names: Sequence[str], *, enrichment: bool, where: str) -> Measured:
    """One measure of an side, or the sum of some classes; enrichment: over what a uniform gaze would give."""
    run = side.run
    if set(names) <= set(run.classes):
        return _of_classes(side, queries, names, enrichment=enrichment)
    name = next(each for each in names if each not in run.classes)
    if name == ENTROPY and run.study.measure.entropy:
        return _entropy(side, queries)
    if name in SCORES:
        held = scores(run, side.model, side.condition, queries)
        if name in held.scores:
            return Measured(np.asarray(held.prompts, dtype=np.int64), held.scores[name])
    if name in OF_INSERTIONS and base_condition(run) is not None:
        return _of_insertion(side, queries, name)
    raise AttnscopeError(
        f"there is no measure '{name}' in this run",
        where=where,
        allowed=near(name, known(run)),
        todo="use one of these",
    )


def known(run: Run) -> list[str]:
    """Names that can be asked for."""
    more = [ENTROPY] if run.study.measure.entropy else []
    return [*run.classes, *more, *SCORES, *(OF_INSERTIONS if base_condition(run) is not None else ())]


def _of_classes(side: Side, queries: str, names: Sequence[str], *, enrichment: bool) -> Measured:
    held = masses(side.run, side.model, side.condition)
    group = side.run.study.measure.queries.index(queries)
    places = [side.run.classes.index(name) for name in names]
    mass, expected = (each[:, group][..., places].sum(-1) for each in (held.mass, held.expected))
    if not enrichment:
        return Measured(held.prompts, mass, np.ones(mass.shape[1:]))
    per_mass = enrichment_of(expected)
    return Measured(held.prompts, mass * per_mass, mean_of_seen(per_mass, 0))


def _entropy(side: Side, queries: str) -> Measured:
    held = side.run.rows("received", side.model, side.condition, ["prompt", "queries", "entropy"])
    held = held.filter(pl.col("queries") == queries).sort("prompt", maintain_order=True)
    prompts = held["prompt"].unique(maintain_order=True).to_numpy().astype(np.int64)
    shape = (len(prompts), len(side.run.layers(side.model)), len(side.run.heads(side.model)))
    return Measured(prompts, held["entropy"].to_numpy().astype(np.float64).reshape(shape))


def _of_insertion(side: Side, queries: str, name: str) -> Measured:
    base = base_condition(side.run)
    if not side.inserts and not side.is_base:
        raise AttnscopeError(
            f"'{name}' is not defined for {side.condition}, which does more than insert text",
            where=f"condition {side.condition}",
            allowed="the base prompt and conditions that only insert text",
            todo="choose another measure or condition",
        )
    if base is None or side.is_base:
        held = masses(side.run, side.model, side.condition)
        shape = held.mass[:, 0, :, :, 0].shape
        return Measured(held.prompts, np.full(shape, 1.0 if name == KEPT else 0.0))
    found = insertion(side.run, side.model, base, side.condition, queries)
    values = {KEPT: found.kept, MOVED: found.moved, TAKEN: found.taken}[name]
    unit = np.ones(values.shape[1:]) if name == TAKEN else None
    return Measured(np.asarray(found.prompts, dtype=np.int64), values, unit)
