"""A map of all heads: layers across, heads down, coloured by a measure or by its change."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.heatmap import chart, prose, statistics
from attnscope.figures.kinds.heatmap.options import HeatmapOptions

HEATMAP = Kind(
    name="heatmap",
    about="a map of all heads",
    options=HeatmapOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
    legend=chart.legend,
)

__all__ = ["HEATMAP", "HeatmapOptions"]
