"""An arm of a comparison: one model under one condition, and every quantity that arms are compared in, by prompt.

All quantities are such that a difference of arms is a difference of them. Those that tell what an insertion does are
relative to the base prompt, which by itself keeps all (1), moves nothing (0) and takes nothing (0). For a class that
no inserted token belongs to, change (of mass, since the base prompt) = dilution + redistribution in every arm, so a
difference in change is the sum of a difference in dilution and one in redistribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.insertion import insertion, untouched_classes
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.study.measures import KEPT, MOVED, TAKEN

Numbers = NDArray[np.float64]

MASS, ENRICHMENT = "mass", "enrichment"
CHANGE, DILUTION, REDISTRIBUTION = PARTS = ("change", "dilution", "redistribution")
ONE_WAY = (DILUTION, KEPT, MOVED, TAKEN)
"""What an insertion can only do one way, so that against the base prompt there is nothing to test."""
SPLIT = "last"
"""The query group that a change is split for: one query, one factor."""
EVERY = "(all)"
"""Stands for a class where a quantity has none."""


@dataclass(frozen=True)
class Arm:
    """One side of a comparison."""

    run: Run
    model: str
    condition: str

    @property
    def inserts(self) -> bool:
        return self.run.study.condition(self.condition).insert is not None


@dataclass(frozen=True)
class Values:
    """One quantity of one class, seen by one query group: (prompts, layers, heads); NaN where it has no meaning."""

    queries: str
    quantity: str
    token_class: str
    prompts: NDArray[np.int64]
    values: Numbers
    per_mass: Numbers | None = None
    """(layers, heads): how much of the quantity one unit of attention is, so that an error can be carried over."""


@dataclass(frozen=True)
class Masses:
    """(prompts, query groups, layers, heads, classes) in each."""

    prompts: NDArray[np.int64]
    mass: Numbers
    expected: Numbers


@lru_cache(maxsize=4)
def masses(run: Run, model: str, condition: str) -> Masses:
    """The table `mass` of one arm as arrays; every cell has the same rows in the same order."""
    held = (
        run.table("mass")
        .filter(pl.col("model") == model, pl.col("condition") == condition)
        .select("prompt", "mass", "expected")
        .collect()
        .sort("prompt", maintain_order=True)
    )
    shape = (len(run.study.measure.queries), len(run.layers(model)), len(run.heads(model)), len(run.classes))
    prompts = held["prompt"].unique(maintain_order=True).to_numpy().astype(np.int64)
    arrays = [held[name].to_numpy().astype(np.float64).reshape(len(prompts), *shape) for name in ("mass", "expected")]
    for array in arrays:
        run.refuse_if_spoilt(array, "mass", f"{model}, {condition}")
    return Masses(prompts, *arrays)


def enrichment_of(expected: Numbers) -> Numbers:
    """How much enrichment one unit of mass is; NaN where a uniform gaze would give nothing."""
    found: Numbers = np.divide(1, expected, out=np.full(expected.shape, np.nan), where=expected > 0)
    return found


def base_condition(run: Run) -> str | None:
    """The first condition that inserts nothing, if the run has one."""
    return next((name for name in run.conditions if run.study.condition(name).insert is None), None)


def quantities(arm: Arm) -> Iterator[Values]:
    """Everything that can be told of an arm; of insertions only if the run has the base prompt too."""
    held = masses(arm.run, arm.model, arm.condition)
    for group, queries in enumerate(arm.run.study.measure.queries):
        for place, name in enumerate(arm.run.classes):
            mass, expected = (each[:, group, :, :, place] for each in (held.mass, held.expected))
            per_mass = enrichment_of(expected)
            yield Values(queries, MASS, name, held.prompts, mass, np.ones(mass.shape[1:]))
            yield Values(queries, ENRICHMENT, name, held.prompts, mass * per_mass, mean_of_seen(per_mass, 0))
    base = base_condition(arm.run)
    if base is None or not any(arm.run.study.condition(name).insert for name in arm.run.conditions):
        return
    if arm.inserts:
        yield from _of_insertion(arm, base)
    else:
        yield from _of_base(arm, held)


def _of_base(arm: Arm, held: Masses) -> Iterator[Values]:
    for group, queries in enumerate(arm.run.study.measure.queries):
        nothing = np.zeros(held.mass[:, group, :, :, 0].shape)
        unit = np.ones(nothing.shape[1:])
        yield Values(queries, TAKEN, EVERY, held.prompts, nothing, unit)
        if queries == SPLIT:
            for quantity in PARTS:
                yield from (Values(queries, quantity, name, held.prompts, nothing, unit) for name in arm.run.classes)
            yield Values(queries, KEPT, EVERY, held.prompts, nothing + 1, np.zeros(unit.shape))
            yield Values(queries, MOVED, EVERY, held.prompts, nothing, np.zeros(unit.shape))


def _of_insertion(arm: Arm, base: str) -> Iterator[Values]:
    before, after = masses(arm.run, arm.model, base), masses(arm.run, arm.model, arm.condition)
    for group, queries in enumerate(arm.run.study.measure.queries):
        found = insertion(arm.run, arm.model, base, arm.condition, queries)
        prompts = np.asarray(found.prompts, dtype=np.int64)
        yield Values(queries, TAKEN, EVERY, prompts, found.taken, np.ones(found.taken.shape[1:]))
        if queries != SPLIT:
            continue
        had, has = (each.mass[np.searchsorted(each.prompts, prompts), group] for each in (before, after))
        for name in untouched_classes(arm.run, arm.model, arm.condition):
            place = arm.run.classes.index(name)
            change = np.where(np.isnan(found.kept), np.nan, has[..., place] - had[..., place])
            diluted = (found.kept - 1) * had[..., place]
            unit = np.ones(change.shape[1:])
            for quantity, values in zip(PARTS, (change, diluted, change - diluted), strict=True):
                yield Values(queries, quantity, name, prompts, values, unit)
        kept, moved = (mean_of_seen(each, 0) for each in (1 / found.had, 1 / found.had + 1 / found.has))
        yield Values(queries, KEPT, EVERY, prompts, found.kept, kept)
        yield Values(queries, MOVED, EVERY, prompts, found.moved, moved)
