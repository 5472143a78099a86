"""How far away attention goes."""

from __future__ import annotations

from typing import Any

from attnscope.measures.measure import Measure


def _block(weights: Any, q: Any, k: Any) -> Any:
    return (weights * (q[:, None] - k[None, :]).abs()).sum(-1) / weights.sum(-1)


def _reference(matrix: Any) -> Any:
    queries, keys = matrix.shape[-2:]
    place = matrix.new_ones(keys).cumsum(0)
    where = matrix @ place / matrix.sum(-1)  # the mean position attended to
    if queries == keys and not matrix.triu(1).any():  # causal: every key is behind its query
        return place - where
    apart = (place[keys - queries :, None] - place).abs()
    return matrix.mul(apart).sum(-1) / matrix.sum(-1)


DISTANCE = Measure(
    name="distance",
    meaning="Mean distance in tokens between a query and the keys it attends to.",
    unit="tokens",
    label="distance (tokens)",
    block=_block,
    reference=_reference,
)
