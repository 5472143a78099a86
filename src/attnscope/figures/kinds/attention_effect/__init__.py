"""Does attention predict effect? A point per head: what it looks at, and what switching it off does to the answer."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.attention_effect import chart, prose, statistics
from attnscope.figures.kinds.attention_effect.options import AttentionEffectOptions

ATTENTION_EFFECT = Kind(
    name="attention-effect",
    about="attention of each head against its effect",
    options=AttentionEffectOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
    legend=chart.legend,
)

__all__ = ["ATTENTION_EFFECT", "AttentionEffectOptions"]
