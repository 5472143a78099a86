"""Run -> one number per prompt for each condition and model, with the mean and its interval."""

from __future__ import annotations

import numpy as np
import polars as pl

from attnscope.analysis.compared import level_as_difference
from attnscope.analysis.means import interval_of, null_of
from attnscope.analysis.measures import measure_values
from attnscope.analysis.ranges import bounds_shown
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Column
from attnscope.figures.kinds.spread.options import SpreadOptions
from attnscope.measures.names import title_of

COLUMNS = (
    Column("panel", pl.String, "the panel's title, such as a class; in order"),
    Column("series", pl.String, "the row's name, such as a condition's"),
    Column("prompt", pl.Int64, "the prompt's number"),
    Column("value", pl.Float64, "the dot's position"),
    Column("mean", pl.Float64, "mean of the row's prompts", optional=True),
    Column("low", pl.Float64, "lower end of the mean's interval, of a share cut at 0", optional=True, gaps=True),
    Column("high", pl.Float64, "upper end of the mean's interval, of a share cut at 1", optional=True, gaps=True),
    Column("colour", pl.String, "of the row, such as '#1f77b4'", optional=True),
)
KEYS = ("panel", "series", "prompt")


def table(run: Run, options: SpreadOptions) -> pl.DataFrame:
    rows = [
        row
        for measures in _measures(run, options)
        for model in options.models_of(run)
        for name in options.conditions_of(run)
        if (row := _row(run, options, Side(run, model, name), measures)) is not None
    ]
    if not rows:
        raise AttnscopeError(
            "no prompt can show this",
            where=f"figure {options.name}",
            allowed="measures that some prompt has",
            todo="choose another measure",
        )
    return pl.concat(rows).select(column.name for column in COLUMNS)


def _measures(run: Run, options: SpreadOptions) -> list[list[str]]:
    """The one that is asked for, or each class."""
    return [options.measures] if options.measures else [[name] for name in selection.classes(run, options)]


def _row(run: Run, options: SpreadOptions, side: Side, measures: list[str]) -> pl.DataFrame | None:
    """The dots of one model under one condition; None if no prompt has a value."""
    values = _values(run, options, side, measures)
    if values is None:
        return None
    many_models, many_conditions = len(options.models_of(run)) > 1, len(options.conditions_of(run)) > 1
    label = selection.condition_label(run, side.condition)
    series = f"{side.model} / {label}" if many_models and many_conditions else side.model if many_models else label
    colours = selection.condition_colours(run, run.conditions)
    colour = colours[label] if many_conditions else selection.model_colour(run, side.model)
    title = title_of(measures[0]) or sentences.listed([selection.class_label(run, name) for name in measures])
    return values.with_columns(panel=pl.lit(title), series=pl.lit(series), colour=pl.lit(colour, dtype=pl.String))


def _values(run: Run, options: SpreadOptions, side: Side, names: list[str]) -> pl.DataFrame | None:
    """prompt, value, mean, low, high; None if no prompt has a value."""
    where, enrichment = f"figure {options.name}: measure", options.value == "enrichment"
    numbers = measure_values(side, selection.queries(run, options), names, enrichment=enrichment, where=where)
    layers = [run.layers(side.model).index(each) for each in selection.layers(run, options, side.model)]
    heads = [run.heads(side.model).index(each) for each in selection.heads(run, options, side.model)]
    values = mean_of_seen(numbers.values[:, layers][:, :, heads], (1, 2))
    known = ~np.isnan(values)
    if not known.any():
        return None
    values, prompts = values[known], numbers.prompts[known]
    every = len(layers) == len(run.layers(side.model)) and len(heads) == len(run.heads(side.model))
    paired = level_as_difference(side, selection.queries(run, options), names[0]) if every else None
    if paired is not None:
        ends = {name: paired[1][name] for name in ("low", "high")}
    else:
        bounds, null = bounds_shown(run, names, enrichment=enrichment), null_of(run, names)
        low, high = interval_of(values, run.clusters(prompts), bounds=bounds, null=null, seed=run.study.seed)
        ends = {"low": low, "high": high}
    return pl.DataFrame({"prompt": prompts, "value": values}).with_columns(
        mean=pl.lit(float(values.mean())), **{name: pl.lit(end, dtype=pl.Float64) for name, end in ends.items()}
    )
