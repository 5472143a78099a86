"""Which keys each query can see, as a plan of row blocks that the kernel walks through.

A mask says it key by key; attention patterns are far simpler than that. Causal, windowed, chunked and padded masks
leave a stretch of keys that every row of a block sees, with a ragged edge on either side and nothing beyond. A plan
holds just these: the kernel skips what no row sees and masks only the edges. A plan is made once for a mask and
serves every layer that shares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.patterns import Pairs
from attnscope.attention.walk import pair_sums
from attnscope.measures.patterns import PATTERNS

Edge = tuple[int, int, Tensor]
"""(first, last, keep): of the keys `[first, last)` only some are seen; keep (heads or 1, rows, keys) is 1 or 0."""


@dataclass(frozen=True)
class Block:
    """Rows `[start, stop)` of the pass; none of them sees a key outside `[first, last)`."""

    start: int
    stop: int
    first: int
    last: int
    edges: tuple[Edge, ...] = ()

    @property
    def cost(self) -> int:
        """Roughly how long it takes: its scores, and as much again for starting it as some hundred keys."""
        return (self.stop - self.start) * (self.last - self.first + 256)


@dataclass(frozen=True)
class Plan:
    """One prompt's blocks, and how many keys each of its rows sees."""

    blocks: tuple[Block, ...]
    visible: Tensor  # (heads or 1, rows) int64; 0 for a row that sees nothing, such as a pad


def rows_per_block(scores_per_row: int) -> int:
    """Rows whose scores fit the cache nearest to a core that they can fit; fewer than 32 waste the products."""
    return max(32, min(128, (3 << 19) // max(1, scores_per_row) // 32 * 32))


def causal_plan(rows: Tensor, keys: int, *, dtype: torch.dtype, block: int) -> Plan:
    """Row r of `rows` (increasing query positions) sees the keys 0 to r."""
    triangle = torch.ones(1, block, block, dtype=dtype, device=rows.device).tril()
    places = rows.tolist()
    blocks = []
    for start in range(0, len(places), block):
        stop = min(start + block, len(places))
        low, high = places[start], places[stop - 1] + 1
        if high - low == stop - start:  # neighbours: all such blocks share one triangle
            keep = triangle[:, : stop - start, : high - low]
        else:
            keep = (torch.arange(low, high, device=rows.device) <= rows[start:stop, None])[None].to(dtype)
        blocks.append(Block(start, stop, 0, high, ((low, high, keep),)))
    return Plan(tuple(blocks), (rows + 1).clamp(max=keys)[None])


def open_plan(rows: Tensor, keys: int, *, block: int) -> Plan:
    """Every row sees every key."""
    count = len(rows)
    blocks = tuple(Block(start, min(start + block, count), 0, keys) for start in range(0, count, block))
    return Plan(blocks, torch.full((1, count), keys, dtype=torch.int64, device=rows.device))


def mask_plan(seen: Tensor, rows: Tensor, *, dtype: torch.dtype, block: int) -> Plan:
    """`seen` (heads or 1, queries, keys) is True where a query sees a key; `rows` are the queries wanted."""
    whole = len(rows) == seen.shape[1]
    blocks, visible = [], []
    for start in range(0, len(rows), block):
        stop = min(start + block, len(rows))
        part = seen[:, start:stop] if whole else seen[:, rows[start:stop]]  # (heads or 1, rows, keys)
        visible.append(part.sum(-1))
        made = _masked_block(part, start, stop, dtype)
        if made is not None:
            blocks.append(made)
    return Plan(tuple(blocks), torch.cat(visible, -1))


def uniform_gaze(plan: Plan, weights: Tensor, keys: int) -> Tensor:
    """What each key would receive (heads or 1, groups, keys) if every row looked at all it sees alike.

    weights (groups, rows), as for the kernel.
    """
    return _spread(plan, weights / plan.visible.clamp(min=1)[:, None], keys)


def seen_share(plan: Plan, weights: Tensor, keys: int) -> Tensor:
    """How much of each group's weight (heads or 1, groups, keys) lies on rows that see the key."""
    return _spread(plan, weights.expand(len(plan.visible), -1, -1), keys)


def uniform_patterns(plan: Plan, pairs: Pairs, weights: Tensor) -> Tensor:
    """(heads or 1, patterns, groups, 2): what a uniform gaze would put there, and the share of queries that have one.

    weights (groups, rows), as for the kernel; pairs in the rows' numbering.
    """
    heads, count = len(plan.visible), len(PATTERNS)
    expected = weights.new_zeros(heads, count, len(weights))
    having = torch.zeros_like(expected)
    for block in plan.blocks:
        seen = weights.new_ones(heads, block.stop - block.start, block.last - block.first)
        for first, last, keep in block.edges:
            seen[:, :, first - block.first : last - block.first] *= keep
        given = (pairs.queries, pairs.keys, pairs.patterns)
        sums = pair_sums(seen, given, count, block.start, block.first)  # (heads or 1, patterns, rows)
        share = weights[:, block.start : block.stop].t()
        visible = plan.visible[:, None, block.start : block.stop].clamp(min=1)
        expected += (sums / visible) @ share
        having += (sums > 0).to(share.dtype) @ share
    return torch.stack([expected, having], -1)


def _spread(plan: Plan, share: Tensor, keys: int) -> Tensor:
    """Each row's share (heads or 1, groups, rows) added to every key it sees."""
    found = share.new_zeros(*share.shape[:2], keys)
    for block in plan.blocks:
        part = share[..., block.start : block.stop]
        found[..., block.first : block.last] += part.sum(-1, keepdim=True)
        for first, last, keep in block.edges:
            found[..., first:last] += part @ (keep.to(part.dtype) - 1)
    return found


def _masked_block(part: Tensor, start: int, stop: int, dtype: torch.dtype) -> Block | None:
    """The block of one stretch of rows, or None when none of them sees anything."""
    some = part.any(1).any(0).nonzero()
    if len(some) == 0:
        return None
    first, last = int(some[0]), int(some[-1]) + 1
    blind = ~part.any(-1, keepdim=True)  # pads: they are let see all of the block, so that no row divides by zero
    part = part[..., first:last] | blind
    ragged = ~part.all(1).all(0)
    edges = [(first + low, first + high, part[..., low:high].to(dtype)) for low, high in _stretches(ragged)]
    return Block(start, stop, first, last, tuple(edges))


def _stretches(flags: Tensor) -> Sequence[tuple[int, int]]:
    """The runs of True in a vector, as (first, last + 1)."""
    outside = flags.new_zeros(1)
    steps = torch.diff(torch.cat([outside, flags, outside]).to(torch.int8))
    return list(zip((steps == 1).nonzero()[:, 0].tolist(), (steps == -1).nonzero()[:, 0].tolist(), strict=True))
