"""What interventions do to answers: the table `outcomes` of one side, read by key.

Everything is relative to the model as it is, in the same prompt. A prompt that an intervention can't be made in has no
row of it and no value here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.run import Run, unusable
from attnscope.analysis.sides import Side
from attnscope.runs.columns import OUTCOMES
from attnscope.study.interventions import NONE, InterventionSpec, Over, Score

Floats = NDArray[np.float64]

_PLACE = ("layer", "head", "token_class")
_KEY = ("intervention", "prompt", *_PLACE)
_PLACES_OF: dict[Over | None, tuple[str, ...]] = {
    None: (),
    "layers": ("layer",),
    "heads": ("layer", "head"),
    "classes": ("token_class",),
}
_ROUNDING = 1e-4  # how far rounding may take a log probability above 0, or a KL divergence below


@dataclass(frozen=True)
class Place:
    """Where a sweep makes its change; an intervention that sweeps over nothing has one place, without any of these."""

    layer: int | None = None
    """The first layer of a window, or the layer of a head."""
    head: int | None = None
    token_class: str | None = None


@dataclass(frozen=True)
class Outcomes:
    """A score of one intervention, relative to the model as it is: (prompts, places); NaN where it can't be made."""

    prompts: NDArray[np.int64]
    places: tuple[Place, ...]
    values: Floats

    def at(self, place: Place) -> Floats:
        """(prompts,)."""
        return self.values[:, self.places.index(place)]


def sides_with_outcomes(run: Run) -> list[Side]:
    """The models and conditions in which the run intervened."""
    if not run.has_outcomes:
        return []
    known = set(run.table(OUTCOMES).select("model", "condition").unique().collect().rows())
    return [Side(run, model, name) for model in run.models for name in run.conditions if (model, name) in known]


def over_of(run: Run, spec: InterventionSpec) -> Over | None:
    """What an intervention sweeps over; a control sweeps over what the intervention it controls for does."""
    return spec.over if spec.like is None else run.study.intervention(spec.like).over


def controls_of(run: Run, name: str) -> list[InterventionSpec]:
    """The controls for an intervention, without their second draws."""
    return [spec for spec in run.study.interventions if spec.like == name and spec.redraws is None]


def second_draw_of(run: Run, control: str) -> InterventionSpec | None:
    return next((spec for spec in run.study.interventions if spec.redraws == control), None)


@lru_cache(maxsize=512)
def outcomes(side: Side, intervention: str, score: Score) -> Outcomes:
    """logprob: the change in log probability. accuracy: 1 where the answer becomes right, -1 where it no longer is.

    flips: 1 where the choice changes or, without choices, whether the model would write the answer. kl: as stored.
    """
    rows, before = _rows(side), _rows(side).filter(intervention=NONE).sort("prompt")
    prompts = before["prompt"].to_numpy().astype(np.int64)
    paired = rows.filter(intervention=intervention).join(before, on="prompt", how="left", suffix="_before")
    places = paired.select(_PLACE).unique().sort(_PLACE)
    values = np.full((len(prompts), len(places)), np.nan)
    keyed = paired.join(places.with_row_index("place"), on=list(_PLACE), how="left", nulls_equal=True)
    at = np.searchsorted(prompts, keyed["prompt"].to_numpy()), keyed["place"].to_numpy()
    values[at] = keyed.select(_score(score, choices=_has_choices(side.run))).to_series().to_numpy()
    return Outcomes(prompts, tuple(Place(*place) for place in places.rows()), values)


def _score(score: Score, *, choices: bool) -> pl.Expr:
    if score == "logprob":
        return pl.col("logprob") - pl.col("logprob_before")
    if score == "kl":
        return pl.col("kl")
    if score == "accuracy":
        name = "right" if choices else "exact"
        return pl.col(name).cast(pl.Float64) - pl.col(f"{name}_before").cast(pl.Float64)
    name = "choice" if choices else "exact"
    return (pl.col(name) != pl.col(f"{name}_before")).cast(pl.Float64)


def _has_choices(run: Run) -> bool:
    return run.study.outcome is not None and run.study.outcome.choices is not None


@lru_cache(maxsize=64)
def _rows(side: Side) -> pl.DataFrame:
    """The rows of a side, after all that is required of them was checked."""
    where = f"{side.run.path / OUTCOMES}.parquet: {side.model}, {side.condition}"
    columns = [*_KEY, "logprob", "kl", "exact", "choice", "right"]
    rows = side.run.rows(OUTCOMES, side.model, side.condition, columns)
    _refuse_unknown(side, rows, where)
    _refuse_misplaced(side, rows, where)
    _refuse(rows.filter(rows.select(_KEY).is_duplicated()), "it has several rows for {}", where)
    as_it_is = rows.filter(intervention=NONE)
    lacking = rows.join(as_it_is, on="prompt", how="anti").with_columns(intervention=pl.lit(NONE))
    _refuse(lacking.with_columns(pl.lit(None).alias(name) for name in _PLACE), "it has no row for {}", where)
    for name, wrong in (("logprob", pl.col("logprob") > _ROUNDING), ("kl", pl.col("kl") < -_ROUNDING)):
        known = pl.col(name).is_finite().fill_null(value=False)
        _refuse(rows.filter(~known), f"{name} of {{}} is not a number", where)
        _refuse(rows.filter(wrong), f"{name} of {{}} is not a {_KIND[name]}", where)
    for name in ("exact", *(("choice", "right") if _has_choices(side.run) else ())):
        _refuse(rows.filter(pl.col(name).is_null()), f"{name} of {{}} is missing", where)
    return rows


_KIND = {"logprob": "log probability", "kl": "KL divergence"}


def _refuse_unknown(side: Side, rows: pl.DataFrame, where: str) -> None:
    names = [spec.name for spec in side.run.study.interventions]
    prompts = sorted(side.run.prompts(side.model, side.condition))
    for column, known in (("intervention", names), ("prompt", prompts)):
        unknown = rows.filter(~pl.col(column).is_in(known))
        _refuse(unknown, f"the run does not have the {column} of its row for {{}}", where)


def _refuse_misplaced(side: Side, rows: pl.DataFrame, where: str) -> None:
    """A sweep has a place of the model in every row, and no other intervention has one."""
    problem = "there is no such place as {}"
    for spec in side.run.study.interventions:
        wanted = _PLACES_OF[over_of(side.run, spec)]
        fits = pl.all_horizontal(pl.col(name).is_not_null() == (name in wanted) for name in _PLACE)
        _refuse(rows.filter(pl.col("intervention") == spec.name, ~fits), problem, where)
    known = (
        pl.col("layer").is_between(0, side.run.depth(side.model) - 1)
        & pl.col("head").fill_null(0).ge(0)
        & pl.col("token_class").is_null()
    )
    is_class = pl.col("layer").is_null() & pl.col("token_class").is_in(side.run.token_sets)
    has_none = pl.all_horizontal(pl.col(name).is_null() for name in _PLACE)
    _refuse(rows.filter(~(known | is_class | has_none).fill_null(value=False)), problem, where)


def _refuse(rows: pl.DataFrame, problem: str, where: str) -> None:
    """Refuse the first of these rows, if there are any. problem: with {} for the row's key."""
    if len(rows):
        first = rows.sort(_KEY, nulls_last=False).row(0, named=True)
        words = ", ".join(f"{name} {first[name]}" for name in _KEY if first[name] is not None)
        raise unusable(where, problem.format(words))
