"""How concentrated attention is on few keys."""

from __future__ import annotations

from typing import Any

from attnscope.measures.measure import Measure


def _block(weights: Any, q: Any, k: Any) -> Any:
    return weights.square().sum(-1) / weights.sum(-1).square()


def _reference(matrix: Any) -> Any:
    return (matrix / matrix.sum(-1, keepdim=True)).norm(dim=-1) ** 2


CONCENTRATION = Measure(
    name="concentration",
    meaning="Sum of squared attention weights: 1 for a single key, 1/n for uniform attention over n keys.",
    unit="share",
    block=_block,
    reference=_reference,
)
