"""Table -> a point per head; filled where the effect is significant, and the strongest of these by name."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.spread import extent
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.attention_effect.prose import axis_of, correlation_words, significant

WIDTH, HEIGHT = 460, 300
BESIDE, SMALL = 2, 330  # panels in a row, and the width of each of several
LETTER = 6.2  # the width in pixels of a letter of a title
EDGE = 0.85  # of the scale: names beyond stand to the left of their points
NAMED = 5  # heads with their names
COLOUR = selection.LINES[0]


def draw(table: pl.DataFrame, look: Look) -> Description:
    titles = list(dict.fromkeys(table["panel"]))
    width, beside = SMALL if len(titles) > 1 else WIDTH, min(BESIDE, len(titles))
    if look.room is not None:
        beside = max(1, min(beside, look.room // 330))
        width = max(160, look.room // beside - 85)
    charts = []
    for place, title in enumerate(titles):
        panel = table.filter(pl.col("panel") == title)
        words = [title, *([correlation_words(panel.row(0, named=True))] if len(titles) > 1 else [])]
        heading = [line for each in words for line in sentences.wrapped(each, int(width / LETTER))]
        charts.append(_panel(panel, heading, look, width, first=not place % beside))
    wide = max(70, beside * (width + 60) // 6)
    return joined("concat", charts, columns=beside, title=selection.title_of(look, legend(table, look), wide))


def legend(table: pl.DataFrame, look: Look) -> str:
    if table["q"].is_null().all():
        return " Open points: not tested."
    names = f" Names (layer.head): the {NAMED} strongest of these." if len(significant(table)) else ""
    return f" Filled: the effect is significant (q < {FALSE_DISCOVERIES} {look.among}); open: it is not.{names}"


def _panel(panel: pl.DataFrame, title: list[str], look: Look, width: int, *, first: bool) -> Description:
    strong = significant(panel)
    named = strong.sort(pl.col("effect").abs(), descending=True).head(NAMED).select("layer", "head")
    data = panel.join(strong.select("layer", "head", filled=pl.lit(value=True)), on=["layer", "head"], how="left")
    data = data.join(named.with_columns(named=pl.lit(value=True)), on=["layer", "head"], how="left").with_columns(
        pl.col("filled", "named").fill_null(value=False),
        label=pl.format("{}.{}", "layer", "head"),
        right=pl.col("attention") > _edge(panel["attention"]),
    )
    x = alt.X("attention:Q", title=sentences.wrapped(axis_of(panel), int(width / LETTER)), scale=alt.Scale(zero=False))
    y = alt.Y("effect:Q", title=sentences.wrapped(look.y, int(HEIGHT / LETTER)) if first else None)
    tooltip = [alt.Tooltip("label:N", title="layer.head")]
    tooltip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("attention", "effect")]
    tooltip += [alt.Tooltip("q:Q", format=".2g"), alt.Tooltip("n:Q")]
    base = alt.Chart()
    points = base.mark_point(size=34, strokeWidth=1.2, opacity=0.8, stroke=COLOUR)
    line = alt.Chart(alt.InlineData(values=[{"nothing": 0}])).mark_rule(color="#888", strokeWidth=1)
    layers = [
        line.encode(alt.Y("nothing:Q")),
        points.transform_filter("!datum.filled").encode(x, y, fill=alt.FillValue("white"), tooltip=tooltip),
        points.transform_filter("datum.filled").encode(x, y, fill=alt.FillValue(COLOUR), tooltip=tooltip),
    ]
    names = base.transform_filter("datum.named").encode(x, y, text="label:N")
    layers += [
        names.transform_filter("!datum.right").mark_text(align="left", dx=6, fontSize=10),
        names.transform_filter("datum.right").mark_text(align="right", dx=-6, fontSize=10),
    ]
    return joined("layer", layers, data, width=width, height=HEIGHT, title=title)


def _edge(attention: pl.Series) -> float:
    low, high = extent(attention)
    return low + EDGE * (high - low)
