"""What a measure declares. Parity checks, tables, study files, maps, the explorer and the docs derive from it.

A measure gives every row of attention (one head, one query) a value; a query group's value is the weighted mean over
its rows. The value is one number (axes `HEAD`) or one number per key (axes `KEY`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEAD: tuple[str, ...] = ()
KEY: tuple[str, ...] = ("key",)
NAME = re.compile(r"[a-z][a-z0-9_]*")
TAKEN = frozenset(
    (
        *("layer", "head", "queries", "key", "prompt", "model", "condition", "step"),  # axes
        *("measure", "token_class", "mass", "value", "expected", "defined", "uniform", "seen", "view"),  # columns
        *("layers", "heads", "tokens", "evidence"),  # of a record as JSON
        *("sink", "kept", "moved", "taken", "other"),  # what a heat map shows besides measures
    )
)
"""Words with another meaning beside a measure's name: in a record, in a run's tables, in figures."""

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The positions of queries and keys, one pair per element."""


@dataclass(frozen=True)
class TokenIds:
    """A prompt's tokens, for measures that need to know them: two tensors (keys,), by position."""

    at: Any
    """The id of the token at each position; -1 where there is none, as at a pad."""
    following: Any
    """The id of the token that comes next in the text; -1 after the last one."""


Block = Callable[..., Any]
"""(weights, q, k) -> values of rows; (weights, q, k, ids) if the measure needs ids.

weights (heads, rows, keys): attention of a block of rows, 0 where a row does not see a key. A row sums to one, or to
less where a model leaves a share to a sink. q (rows,) and k (keys,): positions in the prompt. Returns (heads, rows), or
(heads, rows, keys) for a measure with one number per key.
"""
Reference = Callable[..., Any]
"""(matrix) or (matrix, ids) -> values of rows, from the full matrix (heads, queries, keys) of a prompt, implemented
independently. The queries are the last of the keys.
"""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One statistic over attention rows. Give either `block` and `reference`, or `pairs`."""

    name: str
    meaning: str
    """A sentence for docs and captions."""
    unit: str = "share of attention"
    axes: tuple[str, ...] = HEAD
    block: Block | None = None
    reference: Reference | None = None
    pairs: Callable[[Sequence[int]], Pairs] | None = None
    """(token ids) -> which key each query is paired with; the row's value is its attention on these keys.

    A query without such a key has no value and is not counted.
    """
    needs_ids: bool = False
    """Whether `block`, `reference` and `uniform` get the prompt's `TokenIds` as their last argument."""
    needs_next: bool = False
    """Whether a query's value is about the token after it. The last query of a text then has no value and is not
    counted.
    """
    uniform: Block | None = None
    """The value for uniform attention, given its weights; by default, `block` of these weights."""
    unsettled: Callable[[Any, float], Any] | None = None
    """(matrix, rounding) -> (heads, queries) True where rounding could change the row's value by more than rounding.

    The proof leaves these rows out. For discontinuous measures, such as an argmax.
    """
    label: str = ""
    """A few words for axes and menus; by default the name."""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise ValueError(f"measure '{self.name}': {problem}")

    def _problem(self) -> str | None:
        if not NAME.fullmatch(self.name):
            return "a name is lower-case letters, digits and _, beginning with a letter"
        if self.name in TAKEN:
            return f"the name has another meaning; choose any but {', '.join(sorted(TAKEN))}"
        if not self.meaning.strip():
            return "it has no meaning"
        if self.axes not in (HEAD, KEY):
            return f"axes are {HEAD} or {KEY}, not {self.axes}"
        if (self.pairs is None) == (self.block is None):
            return "it needs either pairs, or block and reference"
        if self.block is not None and self.reference is None:
            return "without a reference it can't be proven"
        if self.pairs is not None and self.axes != HEAD:
            return "pairs give one number per head"
        if self.pairs is not None and (self.needs_ids or self.needs_next):
            return "pairs are given the ids, and say themselves which queries have a value"
        return None

    @property
    def partial(self) -> bool:
        """Whether there may be queries without a value; the mean is over the others."""
        return self.pairs is not None or self.needs_next

    @property
    def title(self) -> str:
        """A few words for axes and menus."""
        return self.label or self.name
