"""Why attention on a class changes when something is inserted: diluted like all tokens, or redistributed among them."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.decomposition import chart, prose, statistics
from attnscope.figures.kinds.decomposition.options import DecompositionOptions

DECOMPOSITION = Kind(
    name="decomposition",
    about="a change by class, split into dilution and redistribution",
    options=DecompositionOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
    legend=chart.legend,
)

__all__ = ["DECOMPOSITION", "DecompositionOptions"]
