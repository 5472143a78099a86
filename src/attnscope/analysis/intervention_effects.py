"""Effects of interventions on answers, over prompts: the change, what of it goes beyond a control, and the placebo.

All three are paired by prompt, and tested with what is used for every other difference. A change is relative to the
model as it is. Beyond the control is the change minus that of a control, which changes as much of something else. The
placebo is a control minus its second draw: what two draws differ by where nothing but chance does.

q is over everything of one score and kind in a run: all models, conditions, interventions and places of sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.discoveries import discoveries
from attnscope.analysis.effects import effects
from attnscope.analysis.outcomes import (
    Outcomes,
    Place,
    controls_of,
    outcomes,
    over_of,
    second_draw_of,
    sides_with_outcomes,
)
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.analysis.spread import Bounds
from attnscope.study.interventions import NONE, InterventionSpec, Score

Floats = NDArray[np.float64]
Kind = Literal["change", "beyond", "placebo"]

CHANGE: Kind = "change"
BEYOND: Kind = "beyond"
PLACEBO: Kind = "placebo"
KINDS: tuple[Kind, ...] = (CHANGE, BEYOND, PLACEBO)

ONE_WAY: tuple[Score, ...] = ("flips", "kl")
"""Scores that an intervention can only raise, so that there is nothing to test against the model as it is."""
_CHANGES: dict[Score, Bounds] = {
    "logprob": (-np.inf, np.inf),
    "accuracy": (-1.0, 1.0),
    "flips": (0.0, 1.0),
    "kl": (0.0, np.inf),
}
_DIFFERENCES: dict[Score, Bounds] = {
    "logprob": (-np.inf, np.inf),
    "accuracy": (-1.0, 1.0),  # of the same prompt, right or not: the model as it is cancels out
    "flips": (-1.0, 1.0),
    "kl": (-np.inf, np.inf),
}

EFFECTS = {
    "model": pl.String,
    "condition": pl.String,
    "intervention": pl.String,
    "layer": pl.Int64,
    "head": pl.Int64,
    "token_class": pl.String,
    "score": pl.String,
    "kind": pl.String,
    "against": pl.String,
    "n": pl.Int64,
    "clusters": pl.Int64,
    "effect": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "size": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "least_q": pl.Float64,
    "same_q": pl.Float64,
}
"""The columns of `intervention_effects`."""


@dataclass(frozen=True)
class _Tested:
    """A column of differences within prompts: an intervention at a place, minus what it is compared with."""

    side: Side
    spec: InterventionSpec
    place: Place
    kind: Kind
    against: str
    prompts: NDArray[np.int64]
    values: Floats

    @property
    def pool(self) -> tuple[str, str, str | None]:
        """Places of a sweep show what tails to expect of one another, and so do interventions that sweep not."""
        sweeps = over_of(self.side.run, self.spec) is not None
        return self.side.model, self.side.condition, self.spec.name if sweeps else None


def intervention_effects(run: Run, score: Score) -> pl.DataFrame:
    """A row for each model, condition, intervention, place and kind of effect; columns as in EFFECTS.

    Empty if the run has no interventions. p and q are null where nothing is tested.
    """
    margin = _margin(run, score)

    def computed() -> pl.DataFrame:
        frames = (_effects(run, score, kind, margin) for kind in KINDS)
        return pl.concat([pl.DataFrame(schema=EFFECTS), *frames])

    return cached_result(run, ("effects of interventions", score, str(margin)), computed)


def _margin(run: Run, score: Score) -> float | None:
    return None if run.study.outcome is None or score != "logprob" else run.study.outcome.margin


def _effects(run: Run, score: Score, kind: Kind, margin: float | None) -> pl.DataFrame:
    """All rows of a kind, which are tested together."""
    columns = [each for side in sides_with_outcomes(run) for each in _of_side(side, score, kind)]
    columns = [each for each in columns if not np.isnan(each.values).all()]
    if not columns:
        return pl.DataFrame(schema=EFFECTS)
    prompts = np.unique(np.concatenate([each.prompts for each in columns]))
    differences = np.full((len(prompts), len(columns)), np.nan)
    for place, each in enumerate(columns):
        differences[np.searchsorted(prompts, each.prompts), place] = each.values
    pools = [each.pool for each in columns]
    found = effects(differences, clusters=run.clusters(prompts), pools=pools, seed=run.study.seed, margin=margin)
    low, high = (
        np.clip(end, *(_CHANGES if kind == CHANGE else _DIFFERENCES)[score]) for end in (found.low, found.high)
    )
    tested = np.array([_is_tested(each, score) for each in columns]) & ~np.isnan(found.p)
    p, same = (np.where(tested, each, np.nan) for each in (found.p, found.same))
    least = np.where(tested, np.minimum(1.0, found.smallest * tested.sum()), np.nan)
    keys = [_key(each, score) for each in columns]
    numbers = {"n": found.n, "clusters": found.clusters, "effect": found.mean, "low": low, "high": high}
    numbers |= {"size": found.size, "p": p, "q": discoveries(p), "least_q": least, "same_q": discoveries(same)}
    schema = {name: EFFECTS[name] for name in keys[0]}
    frame = pl.DataFrame(keys, schema=schema, orient="row").with_columns(
        **{n: pl.Series(v) for n, v in numbers.items()}
    )
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None)).select(
        pl.col(name).cast(kind_of) for name, kind_of in EFFECTS.items()
    )


def _is_tested(each: _Tested, score: Score) -> bool:
    """Second draws are there for the placebo alone, and what can only rise has risen."""
    return each.kind != CHANGE or (score not in ONE_WAY and each.spec.redraws is None)


def _key(each: _Tested, score: Score) -> dict[str, object]:
    where = {"model": each.side.model, "condition": each.side.condition, "intervention": each.spec.name}
    place = {"layer": each.place.layer, "head": each.place.head, "token_class": each.place.token_class}
    return {**where, **place, "score": score, "kind": each.kind, "against": each.against}


def _of_side(side: Side, score: Score, kind: Kind) -> Iterator[_Tested]:
    run = side.run
    for spec in run.study.interventions:
        if spec.is_none:
            continue
        mine = outcomes(side, spec.name, score)
        if kind == CHANGE:
            others: list[str] = [NONE]
        elif kind == BEYOND:
            others = [each.name for each in controls_of(run, spec.name)]
        else:
            again = second_draw_of(run, spec.name)
            others = [] if again is None else [again.name]
        yield from chain.from_iterable(_differences(side, spec, mine, score, kind, other) for other in others)


def _differences(
    side: Side, spec: InterventionSpec, mine: Outcomes, score: Score, kind: Kind, other: str
) -> Iterator[_Tested]:
    """Place by place; a change is relative to the model as it is already."""
    theirs = None if kind == CHANGE else outcomes(side, other, score)
    for place in mine.places:
        values = mine.at(place)
        if theirs is not None:
            if place not in theirs.places:
                continue
            values = values - theirs.at(place)
        yield _Tested(side, spec, place, kind, other, mine.prompts, values)
