"""How spread out attention is."""

from __future__ import annotations

from typing import Any

from attnscope.measures.measure import Measure


def _block(weights: Any, q: Any, k: Any) -> Any:
    shares = weights / weights.sum(-1, keepdim=True)
    return -shares.xlogy(shares).sum(-1)


def _reference(matrix: Any) -> Any:
    totals = matrix.sum(-1)
    return totals.log() - matrix.xlogy(matrix).sum(-1) / totals


ENTROPY = Measure(
    name="entropy",
    meaning="Entropy of attention over the keys: 0 for a single key, log n for uniform attention over n keys.",
    unit="nats",
    label="entropy (nats)",
    block=_block,
    reference=_reference,
)
