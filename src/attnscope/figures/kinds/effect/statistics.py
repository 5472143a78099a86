"""Run -> the effect of each intervention at each of its places, with that of its control and of the second draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from attnscope.analysis.intervention_effects import BEYOND, CHANGE, PLACEBO, intervention_effects
from attnscope.analysis.outcomes import second_draw_of
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.errors import AttnscopeError
from attnscope.figures import selection
from attnscope.figures.interventions import (
    control_of,
    label_of,
    panel_title,
    score_of,
    shown_interventions,
    sides_of,
)
from attnscope.figures.kind import Column
from attnscope.figures.kinds.effect.options import EffectOptions
from attnscope.study.interventions import InterventionSpec

INTERVENTION, CONTROL, PLACEBO_DRAW = "intervention", "control", "placebo"

COLUMNS = (
    Column("panel", pl.String, "the panel's title; in order"),
    Column("place", pl.String, "the intervention, the window of layers, the head or the class; in order"),
    Column(
        "role",
        pl.String,
        "intervention, control, or placebo: the control's second draw, which is not in the picture",
        optional=True,
        gaps=True,
    ),
    Column("intervention", pl.String, "its label", optional=True, gaps=True),
    Column("score", pl.String, "logprob, accuracy, flips or kl", optional=True, gaps=True),
    Column("layer", pl.Int64, "the first of the window, or the head's", optional=True, gaps=True),
    Column("head", pl.Int64, "of a sweep over heads", optional=True, gaps=True),
    Column("value", pl.Float64, "mean over prompts of the score's change from the model as it is"),
    Column("low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Column("q", pl.Float64, "its false discovery rate; empty if not tested", optional=True, gaps=True),
    Column("same_q", pl.Float64, "of the test that it is within the outcome's margin", optional=True, gaps=True),
    Column("least_q", pl.Float64, "the smallest q that it alone can have", optional=True, gaps=True),
    Column("n", pl.Int64, "how many prompts it can be made in", optional=True, gaps=True),
    Column("clusters", pl.Int64, "how many clusters these are in", optional=True, gaps=True),
    Column(
        "against",
        pl.String,
        "what its change is compared with: its control, or a second draw",
        optional=True,
        gaps=True,
    ),
    Column("difference", pl.Float64, "its change minus that one's, mean within prompts", optional=True, gaps=True),
    Column("difference_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("difference_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Column("difference_q", pl.Float64, "its false discovery rate", optional=True, gaps=True),
    Column(
        "difference_same_q",
        pl.Float64,
        "of the test that the difference is within the outcome's margin",
        optional=True,
        gaps=True,
    ),
    Column("pairs", pl.Int64, "how many prompts have both", optional=True, gaps=True),
    Column("colour", pl.String, "of the intervention, such as '#1f77b4'", optional=True, gaps=True),
)
KEYS = ("panel", "role", "intervention", "place")


def of_interventions(table: pl.DataFrame) -> pl.DataFrame:
    """The rows that are neither of a control nor of a second draw."""
    return table.filter(~pl.col("role").is_in([CONTROL, PLACEBO_DRAW]).fill_null(value=False))


def table(run: Run, options: EffectOptions) -> pl.DataFrame:
    rows = effect_rows(run, options)
    if rows.is_empty():
        raise AttnscopeError(
            "no prompt has an outcome of these interventions",
            where=f"figure {options.name}: interventions",
            allowed="interventions that can be made in some prompt",
            todo="choose others",
        )
    return rows


def effect_rows(run: Run, options: EffectOptions) -> pl.DataFrame:
    """The rows of a figure; none where no prompt has an outcome."""
    effects = intervention_effects(run, score_of(run, options.score))
    specs = shown_interventions(run, options.interventions, options.over)
    rows = [
        row
        for side in sides_of(run, options)
        for spec in specs
        for row in _of_intervention(run, options, effects, side, spec, many=len(specs) > 1)
    ]
    return pl.DataFrame(rows, schema={column.name: column.type for column in COLUMNS})


def _of_intervention(
    run: Run, options: EffectOptions, effects: pl.DataFrame, side: Side, spec: InterventionSpec, *, many: bool
) -> Iterator[dict[str, Any]]:
    """Its rows, those of its control and those of the control's second draw."""
    here = effects.filter(model=side.model, condition=side.condition)
    title = panel_title(run, options, side, None if options.over is None else spec, many=many)
    control = control_of(run, spec.name)
    again = None if control is None else second_draw_of(run, control.name)
    chain = [
        (INTERVENTION, spec, BEYOND, control),
        (CONTROL, control, PLACEBO, again),
        (PLACEBO_DRAW, again, None, None),
    ]
    for role, each, kind, other in chain:
        if each is None:
            continue
        changes = here.filter(intervention=each.name, kind=CHANGE)
        where = {"intervention": each.name, "kind": kind, "against": None if other is None else other.name}
        compared = {_key(row): row for row in (here.filter(**where).to_dicts() if other is not None else ())}
        for change in changes.iter_rows(named=True):
            difference = compared.get(_key(change))
            yield {
                "panel": title,
                "role": role,
                "intervention": label_of(each),
                "place": _place(run, options, side, spec, change),
                "colour": spec.colour,
                **_change(change, options.number_from),
                **({} if difference is None or other is None else _difference(difference, label_of(other))),
            }


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["layer"], row["head"], row["token_class"]


def _change(row: dict[str, Any], first: int) -> dict[str, Any]:
    places = {name: None if row[name] is None else row[name] + first for name in ("layer", "head")}
    numbers = {name: row[name] for name in ("score", "low", "high", "q", "same_q", "least_q", "n", "clusters")}
    return {**places, **numbers, "value": row["effect"]}


def _difference(row: dict[str, Any], against: str) -> dict[str, Any]:
    ends = {f"difference_{name}": row[name] for name in ("low", "high", "q", "same_q")}
    return {"against": against, "difference": row["effect"], **ends, "pairs": row["n"]}


def _place(run: Run, options: EffectOptions, side: Side, spec: InterventionSpec, row: dict[str, Any]) -> str:
    """In words, so that a row can be named by it."""
    if row["token_class"] is not None:
        return selection.own_label(run, row["token_class"])
    if row["layer"] is None:
        return label_of(spec)
    layer = row["layer"] + options.number_from
    if row["head"] is not None:
        return f"layer {layer} head {row['head'] + options.number_from}"
    window = 1 if spec.sweep is None else spec.sweep.window
    last = min(layer + window - 1, run.depth(side.model) - 1 + options.number_from)
    return f"layer {layer}" if last == layer else f"layers {layer} to {last}"
