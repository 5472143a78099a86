"""Table -> lines with their bands; filled points where a value differs from the line's first."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.profiles import REACHED
from attnscope.figures import selection, sentences, strokes
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.trajectory.prose import beside, differs

HEIGHT = 210
BESIDE = 3  # panels in a row
LETTER = 6.2  # the width in pixels of a letter of a title


def draw(table: pl.DataFrame, look: Look) -> Description:
    titles = list(dict.fromkeys(table["panel"]))
    scale = strokes.scale(selection.colours_of(table, "series", selection.LINES))
    width, beside = 270 if len(titles) > 1 else 560, min(BESIDE, len(titles))
    if look.room is not None:
        beside = max(1, min(beside, look.room // 320))
        width = max(160, look.room // beside - 85)
    data = reached(table)
    data = data.with_columns(differs=pl.Series([differs(row) is True for row in data.iter_rows(named=True)]))
    key = strokes.key(scale.domain, beside * width)
    charts = [
        _panel(data.filter(pl.col("panel") == title), title, "" if place % beside else look.y, scale, key, width)
        for place, title in enumerate(titles)
    ]
    shared = alt.Resolve(scale=alt.ScaleResolveMap(color="shared"))
    wide = max(70, beside * (width + 60) // 6)
    return joined(
        "concat", charts, columns=beside, resolve=shared, title=selection.title_of(look, legend(table, look), wide)
    )


def reached(table: pl.DataFrame) -> pl.DataFrame:
    """What is drawn: the places that enough of a line's prompts have, as in lines along the prompt."""
    few = pl.col("n") < REACHED * pl.col("n").max().over("panel", "series")
    return table.filter(~few.fill_null(value=False))


def legend(table: pl.DataFrame, look: Look) -> str:
    hidden = len(reached(table)) < len(table)
    left_out = " Places that fewer than half of a line's prompts reach are not shown." * hidden
    return f"{left_out} {_points(table)}"


def _points(table: pl.DataFrame) -> str:
    """What filled and open points mean."""
    if table["q"].is_null().all():
        return "Open points: not tested."
    lines = table.partition_by("panel", "series", maintain_order=True)
    compared = (beside(line.sort("x").to_dicts()) for line in lines)
    others = list(dict.fromkeys(each for each in compared if each is not None))
    against = "the first point of its line"
    if others:
        own_tests = table.filter(~pl.col("against").is_in(others), pl.col("q").is_not_null())
        first = "; on that line, from its first point" if len(own_tests) else ""
        named = sentences.listed([f'"{name}"' for name in others])
        against = f"{named} at the same place{first}"
    return (
        f"Filled: differs from {against}, paired by prompt (q < {FALSE_DISCOVERIES}). Open: not significant, or not "
        "tested."
    )


def _panel(panel: pl.DataFrame, title: str, y: str, scale: alt.Scale, key: alt.Legend, width: int) -> Description:
    axis = panel["axis"].drop_nulls()
    shown = panel.select("series", "x", "at", "value", "low", "high", "n", "q", "differs")
    whole = bool((shown["x"] % 1 == 0).all())
    ticks = alt.Axis(tickMinStep=1, format="d") if whole else alt.Axis()
    x = alt.X("x:Q", title=axis[0] if len(axis) else None, scale=alt.Scale(nice=False, padding=8), axis=ticks)
    colour = alt.Color("series:N", scale=scale, legend=key if len(scale.domain) > 1 else None)
    base = alt.Chart()
    layers = []
    if shown["low"].is_not_null().any():
        band = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        layers.append(band.mark_area(opacity=0.2).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), colour))
    height = alt.Y("value:Q", title=sentences.wrapped(y, int(HEIGHT / LETTER)) or None, scale=alt.Scale(zero=False))
    line = strokes.dashed(base.mark_line(strokeWidth=1.6).encode(x, height, colour), scale.domain, key)
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
    return joined(
        "layer", layers, shown, width=width, height=HEIGHT, title=sentences.wrapped(title, int(width / LETTER))
    )
