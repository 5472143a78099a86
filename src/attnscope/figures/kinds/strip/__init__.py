"""The prompt's own text, each token shaded by the attention it receives."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.strip import chart, prose, statistics
from attnscope.figures.kinds.strip.options import StripOptions

STRIP = Kind(
    name="strip",
    about="the prompt's text, shaded by attention received",
    options=StripOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
)

__all__ = ["STRIP", "StripOptions"]
