"""Which key is copied: it has the largest weight, and its token is the one that is written next.

The retrieval score of a head (Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality") is the
sum over the keys of the needle, from the queries that write the answer.
"""

from __future__ import annotations

from typing import Any

from attnscope.measures.measure import KEY, Measure, TokenIds
from attnscope.measures.top1 import largest, largest_of_matrix, unsettled


def _written_next(q: Any, k: Any, ids: TokenIds) -> Any:
    """(rows, keys): whether a key comes no later than the query, and has the token that follows the query."""
    return (ids.following[q][:, None] == ids.at[k]) & (k <= q[:, None])


def _block(weights: Any, q: Any, k: Any, ids: TokenIds) -> Any:
    return largest(weights) * _written_next(q, k, ids)


def _reference(matrix: Any, ids: TokenIds) -> Any:
    queries, keys = matrix.shape[-2:]
    chosen = largest_of_matrix(matrix.double())  # ids are whole numbers, too large for 16 bits
    place = chosen.new_ones(keys).cumsum(0)
    token = chosen @ ids.at.to(chosen)  # (heads, queries): what each query looks at most
    copied = (token == ids.following[keys - queries :]) & (chosen @ place <= place[keys - queries :])
    return (chosen * copied[..., None]).to(matrix.dtype)


COPIED = Measure(
    name="copied",
    meaning="Share of queries whose largest attention weight is on this key, and whose next token is this key's token.",
    unit="share of queries",
    axes=KEY,
    label="largest weight here, and this token comes next",
    block=_block,
    reference=_reference,
    needs_ids=True,
    needs_next=True,
    uniform=lambda weights, q, k, ids: weights * _written_next(q, k, ids),  # all visible keys tie
    unsettled=unsettled,
)
