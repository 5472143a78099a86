"""Where attention lands, by class of token: stacked bars, one group per layer, one bar per model or condition."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.bars import chart, prose, statistics
from attnscope.figures.kinds.bars.options import BarsOptions

BARS = Kind(
    name="bars",
    about="where attention lands, by class of token",
    options=BarsOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
    legend=chart.legend,
    apart="group",
)

__all__ = ["BARS", "BarsOptions"]
