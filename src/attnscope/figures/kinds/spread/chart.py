"""Table -> rows of dots, spread out within a row so that they can be seen, with the mean and its interval."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.figures import selection
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look

STEP = 34  # a row's height
WIDTH = 460
NAMES, FEWER = 240, 130  # pixels: how long the names of rows may be, and on a screen


def draw(table: pl.DataFrame, look: Look) -> Description:
    colours = selection.colours_of(table, "series", selection.LINES)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    width = WIDTH if look.room is None else max(160, look.room - 150)
    names = alt.Axis(labelLimit=NAMES if look.room is None else FEWER)
    charts = []
    for title in dict.fromkeys(table["panel"]):
        panel = table.filter(pl.col("panel") == title)
        rows = list(dict.fromkeys(panel["series"]))
        y = alt.Y("series:N", title=None, sort=rows, scale=alt.Scale(paddingInner=0.25), axis=names)
        dots = (
            alt.Chart()
            .transform_calculate(aside="(datum.prompt * 0.6180339887) % 1")
            .mark_circle(size=18, opacity=0.6)
            .encode(
                alt.X("value:Q", title=look.y, scale=alt.Scale(zero=False)),
                y,
                alt.YOffset("aside:Q"),
                alt.Color("series:N", scale=scale, legend=None),
                [alt.Tooltip("series:N"), alt.Tooltip("prompt:Q"), alt.Tooltip("value:Q", format=".4f")],
            )
        )
        first = panel.unique("series", keep="first", maintain_order=True)
        means = alt.Chart(first.select("series", "mean", "low", "high"))
        ends = means.mark_rule(color="black", strokeWidth=2).encode(alt.X("low:Q"), alt.X2("high:Q"), y)
        middle = means.mark_tick(color="black", thickness=2.5, size=16).encode(alt.X("mean:Q"), y)
        layers = (dots, ends, middle) if panel["low"].is_not_null().any() else (dots, middle)
        shown = panel.select("series", "prompt", "value")
        charts.append(joined("layer", layers, shown, width=width, height=alt.Step(STEP), title=title))
    return joined("concat", charts, columns=1, title=selection.title_of(look))
