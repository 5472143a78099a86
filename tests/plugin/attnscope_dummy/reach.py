"""A measure: how far back attention goes."""

from __future__ import annotations

from typing import Any

from attnscope.measures import Measure


def _block(weights: Any, q: Any, k: Any) -> Any:
    return (weights * (q[:, None] - k[None, :]).clamp(min=0)).sum(-1)


def _reference(matrix: Any) -> Any:
    queries, keys = matrix.shape[-2:]
    position = matrix.new_ones(keys).cumsum(0)
    return (matrix * (position[keys - queries :, None] - position).clamp(min=0)).sum(-1)


REACH = Measure(
    name="reach",
    meaning="Mean number of tokens between a query and the earlier keys it attends to.",
    unit="tokens",
    block=_block,
    reference=_reference,
)
