"""The pairs of query and key that make a pattern, as tensors the kernel sums over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.measures.patterns import pattern_pairs


@dataclass(frozen=True)
class Pairs:
    """Of one prompt, sorted by query: a query's place, a key's place, and which pattern they make."""

    queries: Tensor
    keys: Tensor
    patterns: Tensor

    def among(self, rows: Tensor) -> Pairs:
        """Of some queries only, numbered by their place among these (increasing)."""
        rows = rows.to(self.queries.device)
        place = torch.searchsorted(rows, self.queries).clamp(max=max(0, len(rows) - 1))
        kept = rows[place] == self.queries if len(rows) else torch.zeros_like(self.queries, dtype=torch.bool)
        return Pairs(place[kept], self.keys[kept], self.patterns[kept])

    def to(self, device: torch.device) -> Pairs:
        return Pairs(self.queries.to(device), self.keys.to(device), self.patterns.to(device))


def pairs_of(ids: Sequence[int]) -> Pairs:
    """All pairs of a prompt."""
    return Pairs(*(torch.from_numpy(each) for each in pattern_pairs(ids)))
