"""Figures, the map of all heads among them: drawn as a study file would draw them."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.run import Run
from attnscope.explorer.responses import Figure
from attnscope.explorer.views.sections import sections
from attnscope.figures.write import content, figure_of, study_lines
from attnscope.study.schema import FigureSpec

TOP = 12  # heads of a map that are listed below it
ABOVE_BARS = 1.08  # of the highest bar, where the vertical scale ends


def figure(run: Run, spec: FigureSpec, width: int | None = None) -> Figure:
    """width: pixels for the chart; the page then shows title and caption itself."""
    drawn = figure_of(run, spec, width)
    return Figure(
        title=drawn.look.title or spec.name,
        caption=drawn.look.caption + drawn.legend,
        reading=sections(drawn.reading),
        chart=drawn.description,
        study=study_lines(spec),
        top=_top_heads(drawn.table) if spec.kind == "heatmap" else [],
        upper=_upper_end(spec.kind, drawn.table),
    )


def figure_file(run: Run, spec: FigureSpec, ending: str) -> bytes:
    return content(figure_of(run, spec), ending)


def _upper_end(kind: str, table: pl.DataFrame) -> float | None:
    """Where the vertical scale of lines or bars has to end."""
    if kind == "lines":
        return float(table.select(pl.max_horizontal("attention", "high").max()).item())
    if kind == "bars":
        whole = table.group_by("group", "bar").agg(pl.col("mass").sum(), pl.col("total_high").first())
        return ABOVE_BARS * float(whole.select(pl.max_horizontal("mass", "total_high").max()).item())
    return None


def _top_heads(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The heads with the largest values on a map, panel by panel."""
    above_floor = pl.col("value").abs() > pl.col("floor").fill_null(0)
    tested = pl.when(pl.col("q").is_not_null())  # what was not tested is neither significant nor insignificant
    significant = tested.then((pl.col("q") < FALSE_DISCOVERIES) & above_floor)
    heads = []
    for _, panel in table.group_by("panel", maintain_order=True):
        ranked = panel.with_columns(significant=significant).sort(
            pl.col("value").abs(), descending=True, maintain_order=True
        )
        columns = ("panel", "layer", "head", "value", "low", "high", "q", "significant", "n")
        heads += ranked.head(TOP).select(columns).to_dicts()
    return heads
