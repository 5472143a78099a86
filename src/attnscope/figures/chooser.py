"""A chart with a layer and a head to choose: where that head's attention lands, condition by condition."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_over_prompts
from attnscope.figures import selection
from attnscope.study.parts import FigurePart

MOST_NUMBERS = 200_000  # that a page should carry


def head_chooser(run: Run) -> alt.TopLevelMixin | None:
    """Bars of mass by class for one head, chosen with sliders; None if the run has too many heads for a page."""
    held = (
        run.table("mass")
        .select("model", "condition", "prompt", "queries", "layer", "head", "token_class", "mass")
        .collect()
    )
    found = mean_over_prompts(held, ["model", "condition", "queries", "layer", "head", "token_class"], "mass")
    if len(found) > MOST_NUMBERS:
        return None
    names = run.classes
    every = FigurePart(name="chooser", kind="bars", classes=names)
    colours = selection.class_colours(run, names)
    labels = {name: selection.class_label(run, name) for name in names}
    data = found.with_columns(
        pl.col("token_class").replace_strict(labels),
        pl.col("mass", "low", "high").round(6),
        bar=pl.col("model") + ", " + pl.col("condition") + ", " + pl.col("queries"),
        order=pl.col("token_class").replace_strict({name: place for place, name in enumerate(names)}),
    ).drop("model", "condition", "queries", "n")
    layers = sorted(set(data["layer"].to_list()))
    heads = sorted(set(data["head"].to_list()))
    layer = alt.param(name="layer", value=layers[0], bind=alt.binding_select(options=layers, name="layer "))
    head = alt.param(name="head", value=heads[0], bind=alt.binding_select(options=heads, name="head "))
    shown = selection.classes(run, every)
    domain = [labels[name] for name in shown]
    chart: alt.TopLevelMixin = (
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
        .add_params(layer, head)
        .properties(width=620, height=alt.Step(26), title="Choose a layer and a head")
    )
    return chart
