"""Patterns that heads are known for: attention on keys in some relation to the query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnscope.measures.measure import Measure, Pairs

NEAR = 8  # the last tokens that count as local
MOST = 128  # at most this many earlier tokens of the same id, the latest ones


def _previous(ids: Sequence[int]) -> Pairs:
    places = np.arange(len(ids))
    return places[1:], places[:-1]


def _next(ids: Sequence[int]) -> Pairs:
    places = np.arange(len(ids))
    return places[:-1], places[1:]


def _repeated(ids: Sequence[int]) -> Pairs:
    earlier: dict[int, list[int]] = {}
    same: list[tuple[int, int]] = []
    for query, token in enumerate(ids):
        positions = earlier.setdefault(token, [])
        same += [(query, key) for key in positions[-MOST:]]
        positions.append(query)
    queries, keys = np.array(same, dtype=np.int64).reshape(-1, 2).T
    return queries, keys


def _induction(ids: Sequence[int]) -> Pairs:
    queries, keys = _repeated(ids)
    inside = keys + 1 < queries
    return queries[inside], keys[inside] + 1


def _local(ids: Sequence[int]) -> Pairs:
    far = np.arange(2 * NEAR, len(ids))  # queries that see clearly more than the local tokens
    return np.repeat(far, NEAR), (far[:, None] - np.arange(NEAR)).ravel()


PREVIOUS = Measure(
    name="previous",
    meaning="Attention on the token before the query.",
    label="attention on the previous token",
    pairs=_previous,
)
NEXT = Measure(
    name="next",
    meaning="Attention on the token after the query, in models that see it.",
    label="attention on the next token",
    pairs=_next,
)
REPEATED = Measure(
    name="repeated",
    meaning="Attention on earlier tokens with the same id as the query.",
    label="attention on earlier occurrences of the token",
    pairs=_repeated,
)
INDUCTION = Measure(
    name="induction",
    meaning="Attention on tokens that followed earlier occurrences of the query's token, as in copying heads.",
    label="attention on what followed earlier occurrences",
    pairs=_induction,
)
LOCAL = Measure(
    name="local",
    meaning=f"Attention on the last {NEAR} tokens, the query's own included, for queries that see clearly more.",
    label=f"attention on the last {NEAR} tokens",
    pairs=_local,
)

PAIRS = {"previous": _previous, "next": _next, "repeated": _repeated, "induction": _induction, "local": _local}
PATTERNS = tuple(PAIRS)
