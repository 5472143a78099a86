"""How a head varies from prompt to prompt: one dot per prompt, one row per condition or model."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.spread import chart, prose, statistics
from attnscope.figures.kinds.spread.options import SpreadOptions

SPREAD = Kind(
    name="spread",
    about="how a head varies from prompt to prompt",
    options=SpreadOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
)

__all__ = ["SPREAD", "SpreadOptions"]
