"""What is wanted of an attention call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnscope.edits.attention import AttentionEdit
from attnscope.errors import AttnscopeError
from attnscope.measures import Measure
from attnscope.measures.received import RECEIVED

FEW = 8  # rows are few if they are at most one in so many


@dataclass(frozen=True)
class PairSet:
    """The pairs of one measure in one prompt, sorted by row: a row's number among those read, and a key's position."""

    rows: Tensor
    keys: Tensor

    def to(self, device: torch.device) -> PairSet:
        return PairSet(self.rows.to(device), self.keys.to(device))


def pair_set(measure: Measure, ids: Sequence[int], positions: Tensor) -> PairSet:
    """Positions (rows,): of the rows that are read, increasing."""
    if measure.pairs is None:
        raise ValueError(f"{measure.name} has no pairs")
    queries, keys = (torch.as_tensor(each) for each in measure.pairs(ids))
    order = torch.argsort(queries, stable=True)
    queries, keys = queries[order], keys[order]
    wanted = positions.cpu()
    if not len(wanted):
        return PairSet(queries[:0], keys[:0])
    place = torch.searchsorted(wanted, queries).clamp(max=len(wanted) - 1)
    known = wanted[place] == queries
    return PairSet(place[known], keys[known])


@dataclass(frozen=True)
class Ask:
    """What a backend is to compute: for which rows, in which query groups, by which measures.

    weights (B, m, rows): each group's share of each row; a group's shares sum to one.
    """

    weights: Tensor
    rows: Tensor
    """(rows,): the numbers of the queries that are read, increasing."""
    output: bool = True
    """Whether the attention output of every query is needed too."""
    measures: tuple[Measure, ...] = (RECEIVED,)
    pairs: dict[str, list[PairSet]] = field(default_factory=dict)
    """By name of a measure with pairs: one set per prompt."""
    edit: WeightsEdit | None = None
    """Changes the weights after softmax, before anything is computed from them."""

    @property
    def groups(self) -> int:
        return self.weights.shape[1]

    @property
    def plain(self) -> bool:
        """Whether attention received is all that is wanted."""
        return self.edit is None and all(each is RECEIVED for each in self.measures)

    def few(self, queries: int) -> bool:
        return len(self.rows) * FEW <= queries


@dataclass(frozen=True)
class WeightsEdit:
    """Edits of the attention weights of one layer: for each prompt, in order. See `edits.attention`."""

    layer: int
    edits: tuple[tuple[AttentionEdit, ...], ...]

    def __call__(self, weights: Tensor, prompt: int, heads: range, q: Tensor, k: Tensor) -> Tensor:
        """Weights (heads, rows, keys) of a prompt -> the changed ones."""
        for edit in self.edits[prompt]:
            changed = edit.weights(weights, self.layer, heads, q, k)
            if not isinstance(changed, Tensor) or changed.shape != weights.shape:
                shape = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
                raise AttnscopeError(
                    f"the attention edit '{edit.key}' returns {shape} for weights of shape {tuple(weights.shape)}",
                    where="its weights method",
                    allowed=f"a tensor of shape {tuple(weights.shape)}",
                    todo="fix the edit",
                )
            weights = changed
        return weights
