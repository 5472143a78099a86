"""Every quantity that sides are compared by, per prompt: masses, enrichment, effects of insertions, derived quantities.

Sides are compared by subtracting these quantities. Those about insertions are relative to the base prompt, which by
itself keeps everything (1), moves nothing (0) and takes nothing (0). For a class without inserted tokens, the change of
mass relative to the base prompt is dilution + redistribution on every side, so a difference in mass is the sum of a
difference in dilution and one in redistribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.derived import derived_values, groups_of
from attnscope.analysis.insertion import insertion, untouched_classes
from attnscope.analysis.run import Run
from attnscope.analysis.sides import (
    DILUTION,
    ENRICHMENT,
    EVERY,
    MASS,
    PARTS,
    REDISTRIBUTION,
    SPLIT,
    Masses,
    Side,
    base_condition,
    enrichment_of,
    masses,
)
from attnscope.analysis.spread import mean_of_seen
from attnscope.measures.names import KEPT, MOVED, TAKEN
from attnscope.text.classes import REMOVED

Floats = NDArray[np.float64]


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
    absent: NDArray[np.bool_] | None = None
    """(prompts,): prompts without a token of the class that a query sees."""


def quantities(run: Run) -> list[tuple[str, str]]:
    """The quantities of each query group of a run; those about insertions only if it has the base prompt."""
    inserts = base_condition(run) is not None and any(run.study.condition(name).inserts for name in run.conditions)
    pairs = []
    for queries in run.queries:
        of_insertions = (TAKEN, *((*PARTS, KEPT, MOVED) if queries == SPLIT else ())) if inserts else ()
        derived = [name for name, each in run.study.quantities.items() if queries in groups_of(run, each)]
        pairs += [(queries, quantity) for quantity in (MASS, ENRICHMENT, *of_insertions, *derived)]
    return pairs


def values_of(side: Side, queries: str, quantity: str) -> Iterator[Values]:
    """One quantity of a side for one query group: per class, or a single one."""
    if quantity in (MASS, ENRICHMENT):
        arrays = masses(side.run, side.model, side.condition, queries)
        for place, name in enumerate(arrays.names):
            absent = arrays.absent[:, place]
            mass, expected = arrays.mass[..., place], arrays.expected[..., place]
            per_share = np.ones(mass.shape[1:]) if name == REMOVED else arrays.per_share
            per_mass = enrichment_of(expected)
            if quantity == MASS:
                yield Values(queries, MASS, name, arrays.prompts, mass, per_share, absent)
            else:
                floor = mean_of_seen(per_mass, 0) * per_share
                yield Values(queries, ENRICHMENT, name, arrays.prompts, mass * per_mass, floor, absent)
        return
    if quantity in side.run.study.quantities:
        yield Values(queries, quantity, EVERY, *derived_values(side, queries, quantity))
        return
    base = base_condition(side.run)
    if base is not None and side.inserts:
        yield from _of_insertion(side, base, queries, quantity)
    elif base is not None and side.is_base:
        yield from _of_base(side, queries, quantity)


def _of_base(side: Side, queries: str, quantity: str) -> Iterator[Values]:
    arrays = masses(side.run, side.model, side.condition, queries)
    nothing = np.zeros(arrays.mass.shape[:3])
    unit = np.ones(nothing.shape[1:])
    if quantity in PARTS:
        yield from (Values(queries, quantity, name, arrays.prompts, nothing, unit) for name in side.run.token_sets)
    elif quantity == TAKEN:
        yield Values(queries, TAKEN, EVERY, arrays.prompts, nothing, unit)
    else:
        yield Values(queries, quantity, EVERY, arrays.prompts, nothing + (quantity == KEPT), np.zeros(unit.shape))


def _of_insertion(side: Side, base: str, queries: str, quantity: str) -> Iterator[Values]:
    effect = insertion(side.run, side.model, base, side.condition, queries)
    prompts = np.asarray(effect.prompts, dtype=np.int64)
    if quantity in PARTS:
        before, after = (masses(side.run, side.model, each, queries) for each in (base, side.condition))
        for name in _of_shared_tokens(side, before, after):
            had, has = (each.of([name])[0][np.searchsorted(each.prompts, prompts)] for each in (before, after))
            diluted = (effect.kept - 1) * had
            values = {DILUTION: diluted, REDISTRIBUTION: has - had - diluted}[quantity]
            yield Values(queries, quantity, name, prompts, values, np.ones(diluted.shape[1:]))
        return
    per_mass = {
        TAKEN: np.ones(effect.taken.shape[1:]),
        KEPT: mean_of_seen(1 / effect.had, 0),
        MOVED: mean_of_seen(1 / effect.had + 1 / effect.has, 0),
    }
    values = {TAKEN: effect.taken, KEPT: effect.kept, MOVED: effect.moved}[quantity]
    yield Values(queries, quantity, EVERY, prompts, values, per_mass[quantity])


def _of_shared_tokens(side: Side, before: Masses, after: Masses) -> list[str]:
    """Classes that no inserted token belongs to, and that no prompt has only with the insertion or only without it."""
    both = np.intersect1d(before.prompts, after.prompts)
    absent = [each.absent[np.isin(each.prompts, both)] for each in (before, after)]
    moved = {name for place, name in enumerate(before.names) if (absent[0][:, place] != absent[1][:, place]).any()}
    return [name for name in untouched_classes(side.run, side.model, side.condition) if name not in moved]
