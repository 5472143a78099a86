"""A side of a comparison: one model under one condition, and the masses of its classes, per prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.dense import SHARE, dense
from attnscope.analysis.run import Run, unusable
from attnscope.analysis.spread import mean_of_seen
from attnscope.measures import MEASURES
from attnscope.measures.names import KEPT, MOVED, TAKEN
from attnscope.records import RECEIVED
from attnscope.records.rest import LEAST
from attnscope.text.classes import REMOVED

Floats = NDArray[np.float64]

MASS, ENRICHMENT = "mass", "enrichment"
DILUTION, REDISTRIBUTION = PARTS = ("dilution", "redistribution")
"""Of the change of a class's mass relative to the base prompt; they add up to it."""
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
class Masses:
    """The masses of one side's classes and sets, from one query group: (prompts, layers, heads, classes and sets).

    NaN where a prompt lacks the group or the class, and where `without` leaves hardly anything.
    """

    prompts: NDArray[np.int64]
    names: Sequence[str]
    mass: Floats
    expected: Floats
    """The same for uniform attention."""
    absent: NDArray[np.bool_]
    """(prompts, classes and sets): no query of the group sees a token of the class, so that its mass is undefined."""
    sinks: float = 0.0
    """How much of a row goes to no key at most, in models with attention sinks of their own."""

    def of(self, names: Sequence[str]) -> tuple[Floats, Floats]:
        """(prompts, layers, heads): mass and expected mass of some classes together; one that is absent has none."""
        places = [self.names.index(name) for name in names]
        none = np.asarray(self.absent[:, places].all(1))[:, None, None]
        mass, expected = (
            np.where(self.absent[:, None, None, places], 0.0, each[..., places]).sum(-1)
            for each in (self.mass, self.expected)
        )
        return np.where(none, np.nan, mass), np.where(none, np.nan, expected)

    @property
    def per_share(self) -> Floats:
        """(layers, heads): how much a mass moves with a head's attention; more than 1 if tokens are left out."""
        if REMOVED not in self.names:
            return np.ones(self.mass.shape[1:3])
        left = 1 - self.mass[..., self.names.index(REMOVED)]
        left = np.where(left > LEAST, np.maximum(left - self.sinks, LEAST), np.nan)
        return mean_of_seen(1 / left, 0)


HAS_CLASS = pl.col("expected").max().over("model", "condition", "prompt", "queries", "token_class") > 0
"""Of rows of the table `mass`: whether the prompt has the class, as in `absent_classes`."""


def absent_classes(expected: Floats) -> NDArray[np.bool_]:
    """(..., layers, heads, classes) of uniform attention -> (..., classes): no query sees a token of the class.

    Its mass is then undefined, and the prompt is left out of the class's means; it does not count as 0.
    """
    absent: NDArray[np.bool_] = (np.nan_to_num(expected) == 0).all((-3, -2))
    return absent


@lru_cache(maxsize=256)
def masses(run: Run, model: str, condition: str, queries: str, measure: str = RECEIVED) -> Masses:
    """The table `mass` of one side and query group as arrays. measure: one with one number per key."""
    group = run.group(queries)
    stored = _stored_masses(run, model, condition, group.series, measure)
    place = stored.groups.index(queries)
    mass, expected = stored.mass[:, place], stored.expected[:, place]
    if measure == RECEIVED:
        absent = absent_classes(expected) & ~stored.lacking[:, place, None]
    else:
        absent = masses(run, model, condition, queries).absent
    mass, expected = (np.where(absent[:, None, None, :], np.nan, each) for each in (mass, expected))
    return Masses(stored.prompts, run.token_sets, mass, expected, absent, run.sink_share(model))


@dataclass(frozen=True)
class _Stored:
    """Rows of the table `mass` as arrays of (prompts, query groups, layers, heads, classes and sets)."""

    prompts: NDArray[np.int64]
    groups: list[str]
    lacking: NDArray[np.bool_]
    """(prompts, query groups): a prompt does not have the group."""
    mass: Floats
    expected: Floats


@lru_cache(maxsize=16)
def _stored_masses(run: Run, model: str, condition: str, series: str | None, measure: str) -> _Stored:
    """The groups of one series, or those of none, which are read together."""
    groups = [group.name for group in run.groups if group.series == series]
    prompts, lacking = run.lacking(model, condition, groups)
    axes: dict[str, Sequence[Any]] = {
        "prompt": prompts.tolist(),
        "queries": groups,
        "layer": run.layers(model),
        "head": run.heads(model),
        "token_class": run.token_sets,
    }
    rows = run.arrow_rows("mass", model, condition, [*axes, "mass", "expected"], measure=measure)
    if len(groups) < len(run.groups):
        rows = rows.filter(pc.is_in(pc.cast(rows["queries"], pa.string()), pa.array(groups, pa.string())))
    where = f"{run.path / 'mass.parquet'}: {model}, {condition}, measure {measure}"
    declared = MEASURES.find(measure, "measure")
    bounds = SHARE if declared.unit.startswith("share") else None
    missing = declared.partial or bool(run.study.without)
    mass, expected = dense(rows, axes, ["mass", "expected"], where, missing=missing, bounds=bounds, lacking=lacking)
    if run.study.without and measure == RECEIVED and not run.sink_share(model):
        _refuse_unexplained(mass, run.token_sets.index(REMOVED), where)
    return _Stored(prompts, groups, lacking, mass, expected)


def _refuse_unexplained(mass: Floats, removed: int, where: str) -> None:
    """Of what is left there are shares, unless hardly anything is. removed: the place of what is left out."""
    left = 1 - mass[..., removed]
    if (np.isnan(mass).any(-1) & (left > 2 * LEAST)).any():
        raise unusable(where, "a share of what is left is missing")


def seen_classes(run: Run, model: str, condition: str) -> list[str]:
    """Classes with at least one token that some query of a side sees."""

    def classes() -> pl.DataFrame:
        stored = _stored_masses(run, model, condition, None, RECEIVED)
        seen = np.flatnonzero((np.nan_to_num(stored.expected) > 0).any((0, 1, 2, 3)))
        names = [run.token_sets[place] for place in seen]
        return pl.DataFrame({"token_class": names}, schema={"token_class": pl.String})

    return cached_result(run, ("seen classes", model, condition), classes)["token_class"].to_list()


def empty_classes(run: Run) -> list[str]:
    """Classes without a token that any query sees."""
    seen = {
        name for model in run.models for condition in run.conditions for name in seen_classes(run, model, condition)
    }
    return [name for name in (*run.study.classes, *run.study.also) if name not in seen]


def enrichment_of(expected: Floats) -> Floats:
    """Enrichment per unit of mass; NaN where uniform attention would give nothing."""
    per_mass: Floats = np.divide(1, expected, out=np.full(expected.shape, np.nan), where=expected > 0)
    return per_mass


def base_condition(run: Run) -> str | None:
    """The first condition that leaves the prompt unchanged, if the run has one."""
    return next((name for name in run.conditions if run.study.condition(name).is_base), None)
