"""How a head varies from prompt to prompt: a dot a prompt, a row a condition or model, a panel a measure."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import polars as pl

from attnscope.analysis.measures import measured
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.analysis.spread import INTERVAL, half_width, mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Field, Kind, Look
from attnscope.measures.names import title_of
from attnscope.study.schema import FigureSpec

FIELDS = (
    Field("panel", pl.String, "the panel's title, such as a class; in order"),
    Field("series", pl.String, "the row's name, such as a condition's"),
    Field("prompt", pl.Int64, "the prompt's number"),
    Field("value", pl.Float64, "the dot's place"),
    Field("mean", pl.Float64, "of the row's prompts", optional=True),
    Field("low", pl.Float64, "lower end of the mean's interval", optional=True, gaps=True),
    Field("high", pl.Float64, "upper end of the mean's interval", optional=True, gaps=True),
    Field("colour", pl.String, "of the row, such as '#1f77b4'", optional=True),
)
STEP = 34  # a row's height
WIDTH = 460


def table(run: Run, part: FigureSpec) -> pl.DataFrame:
    labels, names = selection.models(run, part), selection.conditions(run, part)
    colours = selection.condition_colours(run, run.conditions)
    parts = []
    for measure in _measures(run, part):
        for model in labels:
            for name in names:
                found = _values(run, part, Side(run, model, name), measure)
                if found is not None:
                    label = selection.condition_label(run, name)
                    series = f"{model}, {label}" if len(labels) > 1 and len(names) > 1 else label
                    series = model if len(names) == 1 and len(labels) > 1 else series
                    colour = selection.model_colour(run, model) if len(names) == 1 else colours[label]
                    parts.append(
                        found.with_columns(
                            panel=pl.lit(_panel_title(run, measure)),
                            series=pl.lit(series),
                            colour=pl.lit(colour, dtype=pl.String),
                        )
                    )
    if not parts:
        raise AttnscopeError(
            "no prompt can show this",
            where=f"figure {part.name}",
            allowed="measures that some prompt has",
            todo="choose another measure",
        )
    return pl.concat(parts).select(field.name for field in FIELDS)


def _measures(run: Run, part: FigureSpec) -> list[list[str]]:
    """The one that is asked for, or each class."""
    return [part.measures] if part.measures else [[name] for name in selection.classes(run, part)]


def _panel_title(run: Run, names: list[str]) -> str:
    return title_of(names[0]) or sentences.listed([selection.class_label(run, name) for name in names])


def _values(run: Run, part: FigureSpec, side: Side, names: list[str]) -> pl.DataFrame | None:
    """prompt, value, mean, low, high; None if no prompt has a value."""
    queries = selection.queries(run, part)
    where = f"figure {part.name}: measure"
    found = measured(side, queries, names, enrichment=part.value == "enrichment", where=where)
    layers = [run.layers(side.model).index(each) for each in selection.layers(run, part, side.model)]
    heads = [run.heads(side.model).index(each) for each in selection.heads(run, part, side.model)]
    values = mean_of_seen(found.values[:, layers][:, :, heads], (1, 2))
    known = ~np.isnan(values)
    if not known.any():
        return None
    values = values[known]
    mean, half = values.mean(), float(half_width(len(values))) * (values.std(ddof=1) if len(values) > 1 else np.nan)
    made = pl.DataFrame({"prompt": found.prompts[known], "value": values})
    ends = {"low": mean - half, "high": mean + half}
    return made.with_columns(
        mean=pl.lit(float(mean)),
        **{name: pl.lit(None if np.isnan(end) else float(end), dtype=pl.Float64) for name, end in ends.items()},
    )


def look(run: Run, part: FigureSpec, made: pl.DataFrame) -> Look:
    gaze = selection.group_words(selection.queries(run, part))
    shown = selection.models(run, part)
    heads = f"{selection.layers_words(run, part, shown)} and {selection.heads_words(run, part)}"
    times = ", times a uniform gaze" if part.value == "enrichment" else ""
    most = int(made.group_by("panel", "series").len()["len"].max())  # type: ignore[arg-type]
    return Look(
        title=part.title or "From prompt to prompt",
        y=part.y or f"share of attention{times}" if not part.measure or part.measures[0] in run.classes else "value",
        caption=f"Gaze of {gaze}, {heads}; a dot is one of up to {sentences.counted(most, 'prompt')}, and its height "
        f"within a row means nothing; bar: mean, {INTERVAL if most > 1 else 'no interval'}."
        + (" Layers and heads are numbered from 1." if part.number_from else ""),
        number_from=part.number_from,
    )


def draw(made: pl.DataFrame, seen: Look) -> Description:
    colours = selection.colours_of(made, "series", selection.LINES)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    width = WIDTH if seen.room is None else max(160, seen.room - 150)
    charts = []
    for title in dict.fromkeys(made["panel"]):
        part = made.filter(pl.col("panel") == title)
        rows = list(dict.fromkeys(part["series"]))
        y = alt.Y("series:N", title=None, sort=rows, scale=alt.Scale(paddingInner=0.25), axis=alt.Axis(labelLimit=130))
        colour = alt.Color("series:N", scale=scale, legend=None)
        base = alt.Chart()
        dots = (
            base.transform_calculate(aside="(datum.prompt * 0.6180339887) % 1")
            .mark_circle(size=18, opacity=0.6)
            .encode(
                alt.X("value:Q", title=seen.y, scale=alt.Scale(zero=False)),
                y,
                alt.YOffset("aside:Q"),
                colour,
                [alt.Tooltip("series:N"), alt.Tooltip("prompt:Q"), alt.Tooltip("value:Q", format=".4f")],
            )
        )
        means = alt.Chart(
            part.unique("series", keep="first", maintain_order=True).select("series", "mean", "low", "high")
        )
        ends = means.mark_rule(color="black", strokeWidth=2).encode(alt.X("low:Q"), alt.X2("high:Q"), y)
        middle = means.mark_tick(color="black", thickness=2.5, size=16).encode(alt.X("mean:Q"), y)
        layers = (dots, ends, middle) if part["low"].is_not_null().any() else (dots, middle)
        shown = part.select("series", "prompt", "value")
        charts.append(joined("layer", layers, shown, width=width, height=alt.Step(STEP), title=title))
    return joined("concat", charts, columns=1, title=selection.title_of(seen))


def read(made: pl.DataFrame, seen: Look) -> str:
    numbers, observed = [], []
    for title in dict.fromkeys(made["panel"]):
        means: dict[str, float] = {}
        for name in dict.fromkeys(made.filter(pl.col("panel") == title)["series"]):
            row = made.filter(pl.col("panel") == title, pl.col("series") == name)
            values = row["value"]
            first: dict[str, Any] = row.row(0, named=True)
            means[name] = first["mean"] if first["mean"] is not None else float(values.mean())  # type: ignore[arg-type]
            least, most = (row.sort("value", descending=down).row(0, named=True) for down in (False, True))
            middle: Any = values.median()
            numbers.append(
                f"**{title}, {name}**: mean {sentences.with_interval(means[name], first['low'], first['high'])}, "
                f"median {sentences.number(middle)}, from {sentences.number(least['value'])} (prompt "
                f"{least['prompt']}) to {sentences.number(most['value'])} (prompt {most['prompt']}), "
                f"{sentences.counted(len(row), 'prompt')}."
            )
        told = sentences.extreme(means, "mean of a row", most=True)
        observed.append(f"{title}: {told[0].lower()}{told[1:]}" if told else None)
    panels, rows = (list(dict.fromkeys(made[name])) for name in ("panel", "series"))
    return sentences.document(
        seen.title,
        {
            "Overview": [
                f"Rows of dots, one a prompt, in {sentences.counted(len(panels), 'panel')} "
                f"({sentences.listed(panels)}): {sentences.listed(rows)}.",
                seen.caption or None,
            ],
            "Axes": [f"Horizontal: {seen.y or 'value'}; every panel has its own scale."],
            "Numbers": numbers,
            "Observations": observed,
        },
    )


KIND = Kind(
    "spread", "how a head varies from prompt to prompt", FIELDS, table, look, draw, read, ("panel", "series", "prompt")
)
