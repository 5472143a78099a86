"""Table -> lines with their bands; filled points where a value differs from the line's first."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.trajectory.prose import beside, differs

HEIGHT = 210
BESIDE = 3  # panels in a row
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])


def draw(table: pl.DataFrame, look: Look) -> Description:
    titles = list(dict.fromkeys(table["panel"]))
    colours = selection.colours_of(table, "series", selection.LINES)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    width, beside = 270 if len(titles) > 1 else 560, min(BESIDE, len(titles))
    if look.room is not None:
        beside = max(1, min(beside, look.room // 320))
        width = max(160, look.room // beside - 85)
    data = table.with_columns(differs=pl.Series([differs(row) is True for row in table.iter_rows(named=True)]))
    charts = [
        _panel(data.filter(pl.col("panel") == title), title, "" if place % beside else look.y, scale, width)
        for place, title in enumerate(titles)
    ]
    shared = alt.Resolve(scale=alt.ScaleResolveMap(color="shared"))
    wide = max(70, beside * (width + 60) // 6)
    return joined(
        "concat", charts, columns=beside, resolve=shared, title=selection.title_of(look, legend(table, look), wide)
    )


def legend(table: pl.DataFrame, look: Look) -> str:
    if table["q"].is_null().all():
        return ""
    lines = table.partition_by("panel", "series", maintain_order=True)
    compared = (beside(line.sort("x").to_dicts()) for line in lines)
    others = list(dict.fromkeys(each for each in compared if each is not None))
    against = "from the first of their line"
    if others:
        own_tests = table.filter(~pl.col("against").is_in(others), pl.col("q").is_not_null())
        first = " (its own: from their first)" if len(own_tests) else ""
        against = f"from {sentences.listed(others)} at the same place{first}"
    return (
        f" Filled points differ {against}, paired by prompt (q < {FALSE_DISCOVERIES}); open points are not "
        "significant, or not tested."
    )


def _panel(panel: pl.DataFrame, title: str, y: str, scale: alt.Scale, width: int) -> Description:
    axis = panel["axis"].drop_nulls()
    shown = panel.select("series", "x", "at", "value", "low", "high", "n", "q", "differs")
    whole = bool((shown["x"] % 1 == 0).all())
    ticks = alt.Axis(tickMinStep=1, format="d") if whole else alt.Axis()
    x = alt.X("x:Q", title=axis[0] if len(axis) else None, scale=alt.Scale(nice=False, padding=8), axis=ticks)
    key = alt.Legend(title=None, orient="top", symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=2)
    colour = alt.Color("series:N", scale=scale, legend=key if len(scale.domain) > 1 else None)
    base = alt.Chart()
    layers = []
    if shown["low"].is_not_null().any():
        band = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        layers.append(band.mark_area(opacity=0.2).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), colour))
    height = alt.Y("value:Q", title=y or None, scale=alt.Scale(zero=False))
    line = base.mark_line(strokeWidth=1.6).encode(x, height, colour)
    if len(scale.domain) > 2:  # more than two colours can't be distinguished in gray
        dashes = alt.Scale(domain=scale.domain, range=[DASHES[i % len(DASHES)] for i in range(len(scale.domain))])
        line = line.encode(strokeDash=alt.StrokeDash("series:N", scale=dashes, legend=key))
    tooltip = [alt.Tooltip("series:N"), alt.Tooltip("at:N"), alt.Tooltip("value:Q", format=".4f")]
    tooltip += [alt.Tooltip("q:Q", format=".2g"), alt.Tooltip("n:Q")]
    stroke = alt.Stroke("series:N", scale=scale, legend=None)
    points = base.mark_point(size=42, strokeWidth=1.6, opacity=1)
    filled = points.transform_filter("datum.differs").encode(
        x, height, stroke=stroke, fill=alt.Fill("series:N", scale=scale, legend=None), tooltip=tooltip
    )
    unfilled = points.transform_filter("!datum.differs").encode(
        x, height, stroke=stroke, fill=alt.FillValue("white"), tooltip=tooltip
    )
    layers += [line, unfilled, filled]
    return joined("layer", layers, shown, width=width, height=HEIGHT, title=title)
