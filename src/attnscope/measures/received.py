"""The attention that every key receives: always measured, whatever else is."""

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
