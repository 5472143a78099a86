"""How a measure develops along an axis, such as the steps of a training: lines with intervals."""

from __future__ import annotations

from attnscope.figures.kind import Kind
from attnscope.figures.kinds.trajectory import chart, prose, statistics
from attnscope.figures.kinds.trajectory.options import TrajectoryOptions

TRAJECTORY = Kind(
    name="trajectory",
    about="how attention changes while a model is trained",
    options=TrajectoryOptions,
    columns=statistics.COLUMNS,
    keys=statistics.KEYS,
    table=statistics.table,
    look=prose.look,
    chart=chart.draw,
    prose=prose.write,
    legend=chart.legend,
)

__all__ = ["TRAJECTORY", "TrajectoryOptions"]
