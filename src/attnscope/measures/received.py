"""What every key receives: the measure that all others stand beside."""

from __future__ import annotations

from attnscope.measures.measure import KEY, Measure

RECEIVED = Measure(
    name="received",
    meaning="Attention that a key receives, mean over the queries of the group.",
    axes=KEY,
    label="attention received",
    block=lambda weights, q, k: weights,
    reference=lambda matrix: matrix,
)
