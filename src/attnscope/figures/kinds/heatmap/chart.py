"""Table -> a map per panel, all on one colour scale; changes that are not significant are gray."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.heatmap.prose import too_few

ENDS = ".4~g"  # how a legend writes the ends of its scale; by default they would be rounded
WIDEST = 60  # layers side by side
STEP = 15  # a cell's side
NARROW, LEGEND = 560, 150  # pixels: a screen with no room beside the map; what is beside it otherwise
LARGEST, MARGIN = 30, 55  # a cell's side on a screen; what a panel needs besides its cells
DARK = 0.6  # of the scale: black text can't be seen on it
GRAY = "#bdbdbd"
SAME = "#f2f2f2"
INK, PAPER = "#000000", "#ffffff"  # on a cell, whatever the page's own colours are
DASHED = 0.1  # of the scale: cells this far below zero get a dash, as in gray both ends are dark


def marked(table: pl.DataFrame) -> pl.DataFrame:
    """The cells, and which of them are gray, have an equals sign, or a dash.

    On a panel with tests full colour says significant, so a cell that was not tested is gray there.
    """
    unsure = (pl.col("q") >= FALSE_DISCOVERIES) | (pl.col("value").abs() <= pl.col("floor"))
    untested = pl.col("q").is_null() & pl.col("q").is_not_null().any().over("panel")
    gray = unsure.fill_null(value=False) | untested
    same = (pl.col("same_q") < FALSE_DISCOVERIES).fill_null(value=False)
    below = pl.col("value") < -DASHED * pl.col("value").abs().max()
    return table.with_columns(gray=gray, same=same & gray, dashed=below.fill_null(value=False) & ~gray)


def draw(table: pl.DataFrame, look: Look) -> Description:
    signed = bool((table["value"] < 0).any())
    reach = float(table["value"].abs().max() or 0) or 1.0  # type: ignore[arg-type]
    scale = (
        alt.Scale(scheme="purpleorange", domain=[-reach, reach])
        if signed
        else alt.Scale(scheme="viridis", domain=[0, reach])
    )
    sorted_heads = table["row"].is_not_null().any()
    step, beside = _sizes(look.room, max(1, table["layer"].n_unique()), table["panel"].n_unique())
    side: Any = alt.Undefined if look.room is None or look.room > NARROW else "bottom"
    key = alt.Legend(values=[-reach, 0, reach] if signed else [0, reach / 2, reach], format=ENDS, orient=side)
    colour = alt.Color("value:Q", scale=scale, title=sentences.wrapped(look.y, 18), legend=key)
    tooltip = [
        alt.Tooltip("layer:O"),
        alt.Tooltip("head:O"),
        alt.Tooltip("value:Q", format=".4f"),
        alt.Tooltip("q:Q", format=".2g"),
        alt.Tooltip("n:Q"),
    ]
    charts = []
    for title, cells in _panels(marked(table)).items():
        base = alt.Chart().encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
            y=alt.Y("row:O", title="strongest first") if sorted_heads else alt.Y("head:O", title="head"),
        )
        layers = [
            base.mark_rect().encode(colour, tooltip),
            base.transform_filter("datum.gray").mark_rect(color=GRAY).encode(tooltip=tooltip),
        ]
        if cells["same"].any():
            same = base.transform_filter("datum.same")
            layers += [same.mark_rect(color=SAME).encode(tooltip=tooltip), same.mark_text(fontSize=9, text="=")]
        if cells["dashed"].any():
            below = base.transform_filter("datum.dashed")
            ink = alt.ColorValue(INK, condition={"test": f"datum.value < {-DARK * reach}", "value": PAPER})
            layers.append(below.mark_text(fontSize=9, text="–").encode(ink))
        charts.append(joined("layer", layers, cells, width=alt.Step(step), height=alt.Step(step), title=title))
    return joined("concat", charts, columns=beside, title=selection.title_of(look, legend(table, look), 80))


def _panels(table: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The cells under each title, which says so if this panel is not tested and another one is."""
    parts = {title: table.filter(pl.col("panel") == title) for title in dict.fromkeys(table["panel"])}
    if table["q"].is_null().all():
        return parts
    return {f"{title} (not tested)" if part["q"].is_null().all() else title: part for title, part in parts.items()}


def _sizes(room: int | None, layers: int, panels: int) -> tuple[int, int]:
    """A cell's side, and how many panels are side by side."""
    if room is None:
        return STEP, max(1, WIDEST // layers)
    free = room - (LEGEND if room > NARROW else 0)
    beside = max(1, min(panels, free // (layers * STEP + MARGIN)))
    return max(6, min(LARGEST, (free // beside - MARGIN) // layers)), beside


def legend(table: pl.DataFrame, look: Look) -> str:
    words = " The heads of each layer are sorted by size." if table["row"].is_not_null().any() else ""
    cells = marked(table)
    words += " Dash: below zero by more than a tenth of the scale." if cells["dashed"].any() else ""
    if table["q"].is_not_null().any():
        rounding = " or within rounding error" if table["floor"].is_not_null().any() else ""
        gaps = any(0 < part["q"].null_count() < len(part) for part in _panels(table).values())
        untested = ", or not tested" if gaps else ""
        words += f" Gray: not significant (q >= {FALSE_DISCOVERIES} {look.among}){rounding}{untested}."
        words += " There are too few prompts or clusters for one head alone to be significant." * too_few(table)
    if cells["same"].any():
        words += " Equals sign: not significant, and shown to be within the study's margin; such cells are not gray."
    return words
