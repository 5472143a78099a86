"""Which key gets the largest weight."""

from __future__ import annotations

from typing import Any

from attnscope.measures.measure import KEY, Measure


def largest(weights: Any) -> Any:
    """1 for each row's largest weight, the first of equal ones; 0 for the others."""
    return weights.new_zeros(weights.shape).scatter_(-1, weights.argmax(-1, keepdim=True), 1.0)


def largest_of_matrix(matrix: Any) -> Any:
    """The same in another way."""
    is_largest = (matrix == matrix.amax(-1, keepdim=True)).to(matrix.dtype)
    return is_largest * (is_largest.cumsum(-1) == 1)  # of equal weights, the first key's


def unsettled(matrix: Any, rounding: float) -> Any:
    """Rows whose two largest weights are as near to each other as rounding can bring them."""
    if matrix.shape[-1] < 2:
        return matrix[..., 0] < 0
    two = matrix.topk(2, -1).values
    return two[..., 0] - two[..., 1] <= rounding


TOP1 = Measure(
    name="top1",
    meaning="Share of queries whose largest attention weight is on this key.",
    unit="share of queries",
    axes=KEY,
    label="largest weight here",
    block=lambda weights, q, k: largest(weights),
    reference=largest_of_matrix,
    uniform=lambda weights, q, k: weights,  # all visible keys tie
    unsettled=unsettled,
)
