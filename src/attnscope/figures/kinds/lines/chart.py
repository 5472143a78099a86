"""Table -> lines with their bands, the inserted tokens shaded, and ticks where a line differs from the first."""

from __future__ import annotations

import json

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.figures import selection
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.lines.statistics import FULL, SHARED

HEIGHT = 190
BESIDE = 3  # panels in a row
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
SIGNIFICANT = f"isValid(datum.q) && datum.q < {FALSE_DISCOVERIES}"  # in Vega, null is below any positive number
X_TITLES = {SHARED: "token position, insertion cut out", FULL: "token position, whole sequence"}


def draw(table: pl.DataFrame, look: Look) -> Description:
    titles, forms = (list(dict.fromkeys(table[name])) for name in ("panel", "form"))
    colours = selection.colours_of(table, "series", selection.LINES)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    width, beside = 300 if len(titles) > 1 else 640, BESIDE
    if look.room is not None:
        beside = max(1, min(BESIDE, len(titles), look.room // 340))
        width = max(160, look.room // beside - (100 if "\n" in look.y else 75))
    rows = []
    titled: set[str] = set()
    for start in range(0, len(titles), beside):
        for form in forms:
            charts: list[Description] = []
            for title in titles[start : start + beside]:
                panel = table.filter(pl.col("panel") == title, pl.col("form") == form)
                if len(panel):
                    y, named = "" if charts else look.y, "" if title in titled else title
                    charts.append(_panel(panel, named, y, X_TITLES.get(form, form), scale, width))
                    titled.add(title)
            if charts:
                rows.append(joined("hconcat", charts) if len(charts) > 1 else charts[0])
    shared = alt.Resolve(scale=alt.ScaleResolveMap(color="shared"))
    wide = 130 if len(titles) > 1 else 100
    return joined("vconcat", rows, resolve=shared, title=selection.title_of(look, legend(table, look), wide))


def legend(table: pl.DataFrame, look: Look) -> str:
    if table["q"].is_null().all():
        return ""
    tested = f"paired by prompt (q < {FALSE_DISCOVERIES} among its positions)"
    return f" Ticks at the bottom: different from the first line, {tested}."


def _panel(panel: pl.DataFrame, title: str, y: str, x: str, scale: alt.Scale, width: int) -> Description:
    panel = panel.select("series", "position", "attention", "low", "high", "n", "inserted", "q")
    place = alt.X("position:Q", title=x, scale=alt.Scale(nice=False), axis=alt.Axis(tickMinStep=1))
    key = alt.Legend(title=None, orient="top", symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=2)
    colour = alt.Color("series:N", scale=scale, legend=key)
    base = alt.Chart()
    layers = _insertion(panel, x)
    if panel["low"].is_not_null().any():
        ends = {"low": "max(0, datum.low)", "high": "min(1, datum.high)"}  # whatever table it is, attention is a share
        band = base.transform_filter("isValid(datum.low) && isValid(datum.high)").transform_calculate(**ends)
        layers.append(band.mark_area(opacity=0.22).encode(place, alt.Y("low:Q"), alt.Y2("high:Q"), colour))
    line = base.mark_line(strokeWidth=1.4).encode(
        x=place,
        y=alt.Y("attention:Q", title=y.split("\n") if y else None),
        color=colour,
        tooltip=[
            alt.Tooltip("series:N"),
            alt.Tooltip("position:Q"),
            alt.Tooltip("attention:Q", format=".4f"),
            alt.Tooltip("n:Q"),
        ],
    )
    if len(scale.domain) > 2:  # more than two colours can't be distinguished in gray
        dashes = alt.Scale(domain=scale.domain, range=[DASHES[i % len(DASHES)] for i in range(len(scale.domain))])
        line = line.encode(strokeDash=alt.StrokeDash("series:N", scale=dashes, legend=key))
    layers.append(line)
    different = set(panel.filter(pl.col("q") < FALSE_DISCOVERIES)["series"])
    for row, name in enumerate(name for name in scale.domain if name in different):
        there = base.transform_filter(f"datum.series === {json.dumps(name)} && {SIGNIFICANT}")
        ticks = there.mark_tick(orient="vertical", size=5, thickness=1.6)
        layers.append(ticks.encode(place, _y(HEIGHT - 3 - 6 * row), colour))
    return joined("layer", layers, panel, width=width, height=HEIGHT, title=title)


def _insertion(panel: pl.DataFrame, x: str) -> list[alt.Chart]:
    """A shaded box over the positions that are inserted in most prompts, and its label."""
    inserted = panel.filter(pl.col("inserted") > 0.5)
    span = inserted["position"]
    if not len(span):
        return []
    label = "inserted" if (inserted["inserted"] == 1).all() else "inserted in most prompts"
    box = alt.Chart(pl.DataFrame({"from": [span.min()], "to": [span.max()], "label": [label]}))
    words = box.mark_text(align="left", baseline="top", dx=3, dy=3, fontStyle="italic", color="#555555")
    return [
        box.mark_rect(color="#999999", opacity=0.18).encode(alt.X("from:Q", title=x), alt.X2("to:Q")),
        words.encode(alt.X("from:Q", title=x), _y(0), alt.Text("label:N")),
    ]


def _y(pixels: int) -> alt.YValue:
    return alt.YValue(pixels)  # type: ignore[no-untyped-call]
