"""What interventions do to the answer: by layer, by head, by class or one by one, each beside its control."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.effect import chart, prose, statistics
from attnscope.figures.kinds.effect.options import EffectOptions

EFFECT = Kind(
    name="effect",
    about="what interventions do to the answer",
    options=EffectOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
    legend=chart.legend,
)

__all__ = ["EFFECT", "EffectOptions"]
