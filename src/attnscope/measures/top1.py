"""Which key gets the largest weight."""

from __future__ import annotations

from typing import Any

from attnscope.measures.measure import KEY, Measure


def _block(weights: Any, q: Any, k: Any) -> Any:
    return weights.new_zeros(weights.shape).scatter_(-1, weights.argmax(-1, keepdim=True), 1.0)


def _reference(matrix: Any) -> Any:
    largest = matrix.amax(-1, keepdim=True)
    is_largest = (matrix == largest).to(matrix.dtype)
    return is_largest * (is_largest.cumsum(-1) == 1)  # of equal weights, the first key's


def _unsettled(matrix: Any, rounding: float) -> Any:
    """Rows whose two largest weights are as near to each other as rounding can bring them."""
    if matrix.shape[-1] < 2:
        return matrix[..., 0] < 0
    largest = matrix.topk(2, -1).values
    return largest[..., 0] - largest[..., 1] <= rounding


TOP1 = Measure(
    name="top1",
    meaning="Share of queries whose largest attention weight is on this key.",
    unit="share of queries",
    axes=KEY,
    label="largest weight here",
    block=_block,
    reference=_reference,
    uniform=lambda weights, q, k: weights,  # all visible keys tie
    unsettled=_unsettled,
)
