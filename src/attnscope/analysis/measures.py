"""What a heat map of heads can show, by name: one number per prompt, layer and head of a side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.derived import derived_values
from attnscope.analysis.head_kinds import scores
from attnscope.analysis.head_values import head_values, per_head_measures
from attnscope.analysis.insertion import insertion
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, base_condition, enrichment_of, masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError, near
from attnscope.measures.names import KEPT, MOVED, OF_INSERTIONS, SCORES, TAKEN
from attnscope.text.classes import REMOVED

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeasureValues:
    """(prompts, layers, heads); NaN where a prompt has no value. per_mass: see `sides.Values`."""

    prompts: NDArray[np.int64]
    values: Floats
    per_mass: Floats | None = None


def measure_values(side: Side, queries: str, names: Sequence[str], *, enrichment: bool, where: str) -> MeasureValues:
    """One measure of a side, or the sum of some classes. enrichment: relative to uniform attention."""
    run = side.run
    if set(names) <= set(run.token_sets):
        return _of_classes(side, queries, names, enrichment=enrichment)
    name = next(each for each in names if each not in run.token_sets)
    if name in run.study.quantities:
        return MeasureValues(*derived_values(side, queries, name))
    if name in SCORES:
        head_scores = scores(run, side.model, side.condition, queries)
        if name in head_scores.scores:
            return MeasureValues(np.asarray(head_scores.prompts, dtype=np.int64), head_scores.scores[name])
    elif name in per_head_measures(run):
        numbers = head_values(run, side.model, side.condition, queries, name)
        return MeasureValues(numbers.prompts, numbers.value)
    if name in OF_INSERTIONS and base_condition(run) is not None:
        return _of_insertion(side, queries, name)
    raise AttnscopeError(
        f"there is no class or measure '{name}' in this run",
        where=where,
        allowed=near(name, measure_names(run)),
        todo="use one of these",
    )


def measure_names(run: Run) -> list[str]:
    """The names of all measures available in a run."""
    others = [name for name in per_head_measures(run) if name not in SCORES]
    return [
        *run.token_sets,
        *run.study.quantities,
        *others,
        *SCORES,
        *(OF_INSERTIONS if base_condition(run) is not None else ()),
    ]


def _of_classes(side: Side, queries: str, names: Sequence[str], *, enrichment: bool) -> MeasureValues:
    arrays = masses(side.run, side.model, side.condition, queries)
    mass, expected = arrays.of(names)
    per_share = np.ones(mass.shape[1:]) if list(names) == [REMOVED] else arrays.per_share
    if not enrichment:
        return MeasureValues(arrays.prompts, mass, per_share)
    per_mass = enrichment_of(expected)
    return MeasureValues(arrays.prompts, mass * per_mass, mean_of_seen(per_mass, 0) * per_share)


def _of_insertion(side: Side, queries: str, name: str) -> MeasureValues:
    base = base_condition(side.run)
    if not side.inserts and not side.is_base:
        raise AttnscopeError(
            f"'{name}' is not defined for {side.condition}, which does more than insert text",
            where=f"condition {side.condition}",
            allowed="the base prompt and conditions that only insert text",
            todo="choose another measure or condition",
        )
    if base is None or side.is_base:
        arrays = masses(side.run, side.model, side.condition, queries)
        return MeasureValues(arrays.prompts, np.full(arrays.mass.shape[:3], 1.0 if name == KEPT else 0.0))
    effect = insertion(side.run, side.model, base, side.condition, queries)
    values = {KEPT: effect.kept, MOVED: effect.moved, TAKEN: effect.taken}[name]
    unit = np.ones(values.shape[1:]) if name == TAKEN else None
    return MeasureValues(np.asarray(effect.prompts, dtype=np.int64), values, unit)
