"""A side of a comparison: one model under one condition, and every quantity that sides are compared by, per prompt.

Sides are compared by subtracting these quantities. Those about insertions are relative to the base prompt, which by
itself keeps everything (1), moves nothing (0) and takes nothing (0). For a class without inserted tokens, change (of
mass, relative to the base prompt) = dilution + redistribution on every side, so a difference in change is the sum of a
difference in dilution and one in redistribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.dense import SHARE, dense
from attnscope.analysis.insertion import insertion, untouched_classes
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.measures import MEASURES
from attnscope.measures.names import KEPT, MOVED, TAKEN
from attnscope.records import RECEIVED

Floats = NDArray[np.float64]

MASS, ENRICHMENT = "mass", "enrichment"
CHANGE, DILUTION, REDISTRIBUTION = PARTS = ("change", "dilution", "redistribution")
ONE_WAY = (DILUTION, KEPT, MOVED, TAKEN)
"""Quantities that an insertion can only change one way, so that there is nothing to test against the base prompt."""
SPLIT = "last"
"""The query group for which a change is split: a single query, so a single factor."""
EVERY = "(all)"
"""In place of a class, for quantities that have none."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    run: Run
    model: str
    condition: str

    @property
    def inserts(self) -> bool:
        """Whether its condition inserts text and does nothing else."""
        return self.run.study.condition(self.condition).inserts

    @property
    def is_base(self) -> bool:
        return self.run.study.condition(self.condition).is_base


@dataclass(frozen=True)
class Values:
    """One quantity of one class and query group: (prompts, layers, heads); NaN where it is undefined."""

    queries: str
    quantity: str
    token_class: str
    prompts: NDArray[np.int64]
    values: Floats
    per_mass: Floats | None = None
    """(layers, heads): the quantity per unit of attention, to convert rounding errors."""


@dataclass(frozen=True)
class Masses:
    """Arrays of (prompts, query groups, layers, heads, classes)."""

    prompts: NDArray[np.int64]
    mass: Floats
    expected: Floats


@lru_cache(maxsize=8)
def masses(run: Run, model: str, condition: str, measure: str = RECEIVED) -> Masses:
    """The table `mass` of one side as arrays. measure: one with one number per key."""
    axes: dict[str, Sequence[Any]] = {
        "prompt": run.cells_of(model, condition)["prompt"].to_list(),
        "queries": run.study.measure.queries,
        "layer": run.layers(model),
        "head": run.heads(model),
        "token_class": run.classes,
    }
    rows = run.arrow_rows("mass", model, condition, [*axes, "mass", "expected"], measure=measure)
    where = f"{run.path / 'mass.parquet'}: {model}, {condition}, measure {measure}"
    declared = MEASURES.find(measure, "measure")
    bounds = SHARE if declared.unit.startswith("share") else None
    mass, expected = dense(rows, axes, ["mass", "expected"], where, missing=declared.partial, bounds=bounds)
    return Masses(np.asarray(axes["prompt"], dtype=np.int64), mass, expected)


def seen_classes(run: Run, model: str, condition: str) -> list[str]:
    """Classes with at least one token that some query of a side sees."""

    def classes() -> pl.DataFrame:
        seen = np.flatnonzero((masses(run, model, condition).expected > 0).any((0, 1, 2, 3)))
        return pl.DataFrame({"token_class": [run.classes[place] for place in seen]}, schema={"token_class": pl.String})

    return cached_result(run, ("seen classes", model, condition), classes)["token_class"].to_list()


def empty_classes(run: Run) -> list[str]:
    """Classes without a token that any query sees: the rule matches nothing, or only what other classes claimed."""
    seen = {
        name for model in run.models for condition in run.conditions for name in seen_classes(run, model, condition)
    }
    return [name for name in run.study.classes if name not in seen]


def enrichment_of(expected: Floats) -> Floats:
    """Enrichment per unit of mass; NaN where uniform attention would give nothing."""
    per_mass: Floats = np.divide(1, expected, out=np.full(expected.shape, np.nan), where=expected > 0)
    return per_mass


def base_condition(run: Run) -> str | None:
    """The first condition that leaves the prompt unchanged, if the run has one."""
    return next((name for name in run.conditions if run.study.condition(name).is_base), None)


def quantities(run: Run) -> list[tuple[str, str]]:
    """The quantities of each query group of a run; those about insertions only if it has the base prompt."""
    inserts = base_condition(run) is not None and any(run.study.condition(name).inserts for name in run.conditions)
    pairs = []
    for queries in run.study.measure.queries:
        of_insertions = (TAKEN, *((*PARTS, KEPT, MOVED) if queries == SPLIT else ())) if inserts else ()
        pairs += [(queries, quantity) for quantity in (MASS, ENRICHMENT, *of_insertions)]
    return pairs


def values_of(side: Side, queries: str, quantity: str) -> Iterator[Values]:
    """One quantity of a side for one query group: per class, or a single one."""
    if quantity in (MASS, ENRICHMENT):
        arrays = masses(side.run, side.model, side.condition)
        group = side.run.study.measure.queries.index(queries)
        for place, name in enumerate(side.run.classes):
            mass, expected = (each[:, group, :, :, place] for each in (arrays.mass, arrays.expected))
            per_mass = enrichment_of(expected)
            if quantity == MASS:
                yield Values(queries, MASS, name, arrays.prompts, mass, np.ones(mass.shape[1:]))
            else:
                yield Values(queries, ENRICHMENT, name, arrays.prompts, mass * per_mass, mean_of_seen(per_mass, 0))
        return
    base = base_condition(side.run)
    if base is not None and side.inserts:
        yield from _of_insertion(side, base, queries, quantity)
    elif base is not None and side.is_base:
        yield from _of_base(side, queries, quantity)


def _of_base(side: Side, queries: str, quantity: str) -> Iterator[Values]:
    arrays = masses(side.run, side.model, side.condition)
    nothing = np.zeros(arrays.mass[:, 0, :, :, 0].shape)
    unit = np.ones(nothing.shape[1:])
    if quantity in PARTS:
        yield from (Values(queries, quantity, name, arrays.prompts, nothing, unit) for name in side.run.classes)
    elif quantity == TAKEN:
        yield Values(queries, TAKEN, EVERY, arrays.prompts, nothing, unit)
    else:
        yield Values(queries, quantity, EVERY, arrays.prompts, nothing + (quantity == KEPT), np.zeros(unit.shape))


def _of_insertion(side: Side, base: str, queries: str, quantity: str) -> Iterator[Values]:
    effect = insertion(side.run, side.model, base, side.condition, queries)
    prompts = np.asarray(effect.prompts, dtype=np.int64)
    if quantity in PARTS:
        before, after = masses(side.run, side.model, base), masses(side.run, side.model, side.condition)
        group = side.run.study.measure.queries.index(queries)
        had, has = (each.mass[np.searchsorted(each.prompts, prompts), group] for each in (before, after))
        for name in untouched_classes(side.run, side.model, side.condition):
            place = side.run.classes.index(name)
            change = np.where(np.isnan(effect.kept), np.nan, has[..., place] - had[..., place])
            diluted = (effect.kept - 1) * had[..., place]
            values = {CHANGE: change, DILUTION: diluted, REDISTRIBUTION: change - diluted}[quantity]
            yield Values(queries, quantity, name, prompts, values, np.ones(change.shape[1:]))
        return
    per_mass = {
        TAKEN: np.ones(effect.taken.shape[1:]),
        KEPT: mean_of_seen(1 / effect.had, 0),
        MOVED: mean_of_seen(1 / effect.had + 1 / effect.has, 0),
    }
    values = {TAKEN: effect.taken, KEPT: effect.kept, MOVED: effect.moved}[quantity]
    yield Values(queries, quantity, EVERY, prompts, values, per_mass[quantity])
