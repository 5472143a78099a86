"""A chart in which to choose a layer and a head: where its attention lands, by class and along the prompt."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.means import mean_over_prompts
from attnscope.analysis.profiles import profile_of
from attnscope.analysis.received import HeadChoice
from attnscope.analysis.run import Run
from attnscope.analysis.sides import HAS_CLASS
from attnscope.analysis.spread import cut_to_shares
from attnscope.figures import selection
from attnscope.figures.compose import drawable

MOST_BARS = 200_000  # numbers that a page can carry
MOST_POINTS = 1_000_000
WIDTH = 620


def head_chooser(run: Run) -> dict[str, Any] | None:
    """Bars of mass by class and lines along the prompt for one head; None if a page can't carry so many heads."""
    profiles: dict[str, list[dict[str, object]]] = {}
    bars, lines = _mass(run), _lines(run, profiles)
    if bars is None and lines is None:
        return None
    layers = sorted({layer for model in run.models for layer in run.layers(model)})
    heads = sorted({head for model in run.models for head in run.heads(model)})
    layer = alt.param(name="layer", value=layers[0], bind=alt.binding_select(options=layers, name="layer "))
    head = alt.param(name="head", value=heads[0], bind=alt.binding_select(options=heads, name="head "))
    chart = (
        alt.vconcat(*(chart for chart in (bars, lines) if chart is not None))
        .add_params(layer, head)
        .resolve_scale(color="independent")
        .properties(title=alt.Title("Choose a layer and a head (numbered from 0)", anchor="start"))
    )
    description: dict[str, Any] = drawable(chart.to_dict())
    description["datasets"] = {**description.get("datasets", {}), **profiles}  # too many numbers for altair to copy
    return description


def _mass(run: Run) -> alt.Chart | None:
    masses = (
        run.table("mass")
        .filter(
            pl.col("measure") == "received",
            pl.col("token_class").is_in(run.classes),
            pl.col("queries").is_in(run.queries),
            pl.col("mass").is_not_null(),
            HAS_CLASS,
        )
        .select("model", "condition", "prompt", "queries", "layer", "head", "token_class", "mass")
        .collect()
    )
    keys = ["model", "condition", "queries", "layer", "head", "token_class"]
    means = cut_to_shares(mean_over_prompts(masses, keys, "mass", run.cluster_of), "low", "high")
    if len(means) > MOST_BARS:
        return None
    names = run.classes
    colours = selection.class_colours(run, names)
    labels = {name: selection.class_label(run, name) for name in names}
    shown = {name: selection.condition_label(run, name) for name in run.conditions}
    data = means.with_columns(
        pl.col("token_class").replace_strict(labels),
        pl.col("mass", "low", "high").round(6),
        bar=pl.col("model") + " / " + pl.col("condition").replace_strict(shown) + " / " + pl.col("queries"),
        order=pl.col("token_class").replace_strict({name: place for place, name in enumerate(names)}),
    ).drop("model", "condition", "queries", "n")
    domain = list(labels.values())
    bars: alt.Chart = (
        alt.Chart(data)
        .transform_filter("datum.layer == layer && datum.head == head")
        .mark_bar(stroke="white", strokeWidth=0.7)
        .encode(
            y=alt.Y("bar:N", title=None, sort=None, axis=alt.Axis(labelLimit=320)),
            x=alt.X("mass:Q", title="share of attention, mean over prompts", stack="zero"),
            color=alt.Color(
                "token_class:N",
                scale=alt.Scale(domain=domain, range=[colours[name] for name in domain]),
                legend=alt.Legend(title=None, orient="top"),
            ),
            order="order:Q",
            tooltip=["bar", "token_class", *(alt.Tooltip(name, format=".4f") for name in ("mass", "low", "high"))],
        )
        .properties(width=WIDTH, height=alt.Step(26))
    )
    return bars


def _lines(run: Run, profiles: dict[str, list[dict[str, object]]]) -> alt.VConcatChart | None:
    """One panel per model, one line per condition, over the whole sequence; their numbers go into `profiles`."""
    queries = "all" if "all" in run.queries else run.queries[0]
    longest = int(run.table("prompts").select(pl.col("tokens").max()).collect().item())
    heads = sum(len(run.layers(model)) * len(run.heads(model)) for model in run.models)
    if heads * longest * len(run.conditions) > MOST_POINTS:
        return None
    colours = selection.condition_colours(run, run.conditions)
    panels = []
    for model in run.models:
        chosen = HeadChoice(model, queries, run.layers(model), run.heads(model))
        rows: list[dict[str, object]] = []
        for name in run.conditions:
            label = drawable(selection.condition_label(run, name))
            profile = profile_of(run, chosen, name)
            places = profile.shown
            for (layer, head), mean in _each(profile.mean[..., places], chosen):
                rows.append({"series": label, "layer": layer, "head": head, "at": places.tolist(), "attention": mean})
        name = f"profiles-{len(profiles)}"
        profiles[name] = rows
        there = {row["series"] for row in rows}
        shown = {label: colour for label, colour in colours.items() if drawable(label) in there}
        panels.append(_panel(name, model, queries, shown))
    return alt.vconcat(*panels)


def _each(means: NDArray[np.float64], chosen: HeadChoice) -> list[tuple[tuple[int, int], list[float | None]]]:
    return [
        ((layer, head), [None if np.isnan(value) else float(f"{value:.4g}") for value in means[row, column]])
        for row, layer in enumerate(chosen.layers)
        for column, head in enumerate(chosen.heads)
    ]


def _panel(data: str, model: str, queries: str, colours: dict[str, str]) -> alt.Chart:
    panel: alt.Chart = (
        alt.Chart(alt.NamedData(name=data))
        .transform_filter("datum.layer == layer && datum.head == head")
        .transform_flatten(["at", "attention"], as_=["position", "attention"])
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X(
                "position:Q",
                title="token position, whole sequence",
                scale=alt.Scale(nice=False),
                axis=alt.Axis(tickMinStep=1),
            ),
            y=alt.Y("attention:Q", title="average attention weight"),
            color=alt.Color(
                "series:N",
                scale=alt.Scale(domain=list(colours), range=list(colours.values())),
                legend=alt.Legend(title=None, orient="top", symbolType="stroke"),
            ),
            tooltip=["series:N", "position:Q", alt.Tooltip("attention:Q", format=".4f")],
        )
        .properties(width=WIDTH, height=190, title=f"{model}, attention from {selection.group_words(queries)}")
    )
    return panel
