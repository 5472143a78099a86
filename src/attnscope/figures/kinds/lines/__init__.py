"""Attention received along the prompt: one line per condition, one panel per head."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.lines import chart, prose, statistics
from attnscope.figures.kinds.lines.options import AlignSpec, LinesOptions, PanelSpec

LINES = Kind(
    name="lines",
    about="attention received along the prompt",
    options=LinesOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
    legend=chart.legend,
)

__all__ = ["LINES", "AlignSpec", "LinesOptions", "PanelSpec"]
