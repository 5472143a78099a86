"""Patterns that heads are known for, told pair by pair: which keys of a query a pattern means.

previous: the token before. next: the token after, in models that see it. repeated: earlier tokens of the same id.
induction: tokens that came after those, which a model that copies looks at. local: the last few tokens, the query's own
included, for queries that see clearly more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PATTERNS = ("previous", "next", "repeated", "induction", "local")
NEAR = 8  # tokens that are local
MOST = 128  # earlier tokens of the same id that are looked at, the latest ones

Numbers = NDArray[np.int64]


def pattern_pairs(ids: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
    """All pairs of a prompt, sorted by query: the query's place, the key's place, and the pattern's number."""
    places = np.arange(len(ids))
    earlier: dict[int, list[int]] = {}
    same: list[tuple[int, int]] = []
    for query, token in enumerate(ids):
        known = earlier.setdefault(token, [])
        same += [(query, key) for key in known[-MOST:]]
        known.append(query)
    later, first = np.array(same, dtype=np.int64).reshape(-1, 2).T
    ahead = first + 1 < later
    far = places[2 * NEAR :]
    found = {
        "previous": (places[1:], places[:-1]),
        "next": (places[:-1], places[1:]),
        "repeated": (later, first),
        "induction": (later[ahead], first[ahead] + 1),
        "local": (np.repeat(far, NEAR), (far[:, None] - np.arange(NEAR)).ravel()),
    }
    queries, keys = (np.concatenate([found[name][side] for name in PATTERNS]) for side in (0, 1))
    numbers = np.repeat(np.arange(len(PATTERNS)), [len(found[name][0]) for name in PATTERNS])
    order = np.argsort(queries, kind="stable")
    return queries[order], keys[order], numbers[order]
