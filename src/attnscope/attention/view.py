"""What each query can see, as a plan of row blocks that backends walk through.

A mask says it key by key; attention patterns are far simpler than that. Causal, windowed, chunked and padded masks
leave a stretch of keys that every row of a block sees, with a ragged edge on either side and nothing beyond. A plan
holds just these: a backend skips what no row sees and masks only the edges. A view is made once for a mask and serves
every layer that shares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnscope.attention.call import AnyCall, Call, MatrixCall

HIDDEN = ", keys hidden"  # at the end of a view's words
HIDING = -9000.0  # models hide a key by adding minus infinity, the dtype's least number, or -10000

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

    def seen(self, heads: int, like: Tensor) -> Tensor:
        """(heads, rows, keys): 1 where a row sees a key, else 0."""
        seen = like.new_ones(heads, self.stop - self.start, self.last - self.first)
        for first, last, keep in self.edges:
            seen[:, :, first - self.first : last - self.first] *= keep.to(seen.dtype)
        return seen


@dataclass(frozen=True)
class Plan:
    """One prompt's blocks, and how many keys each of its rows sees."""

    blocks: tuple[Block, ...]
    visible: Tensor  # (heads or 1, rows) int64; 0 for a row that sees nothing, such as a pad


@dataclass(frozen=True)
class View:
    """What the rows of a call can see. Row numbers count the rows that are read, `positions` says which these are."""

    plans: list[Plan]
    """One per prompt."""
    positions: Tensor
    """(rows,): the position of each row among the keys."""
    bias: Tensor | None
    """(B or 1, H or 1, rows, Sk): what is added to the scores."""
    kind: str
    """In words, for the evidence: causal, mask, window 512, softcap 50, ..."""
    blind: bool = False
    """Whether some query of the call sees no key, as those of pads do; it need not be among the rows."""
    numbers: dict[str, Tensor] = field(default_factory=dict)
    """What depends on the view alone, once it is known: see `attention.uniform`."""


@dataclass(frozen=True)
class _Source:
    """What a view was made from, kept so that it can be recognised. A mask may be rewritten in place, so it is compared
    by content: an address only names a mask while nobody writes to it.
    """

    shape: tuple[object, ...]
    tensors: tuple[Tensor | None, ...]


class Views:
    """The views of one forward, made once for each kind of mask."""

    MOST = 4  # a model has two or three kinds of mask; one with a mask per layer need not keep them all

    def __init__(self, *, lengths: list[int] | None = None, block: int | None = None) -> None:
        self._lengths, self._block = lengths, block
        self._known: list[tuple[_Source, View]] = []

    def of(self, call: AnyCall, rows: Tensor, hidden: Tensor | None = None) -> View:
        """What these rows of a call see. hidden (B or 1, H or 1, Sq, Sk): keys that an edit hides from queries."""
        tensors = (call.mask, call.bias if isinstance(call, Call) else None, hidden)
        shape = (*_facts(call), call.batch, call.heads, call.queries, call.keys, call.device, call.dtype, len(rows))
        for source, view in self._known:
            same_rows = source.shape == shape and torch.equal(view.positions, rows + call.first)
            if same_rows and all(map(_same, source.tensors, tensors)):
                return view
        view = look(call, rows, hidden=hidden, lengths=self._lengths, block=self._block)
        kept = tuple(None if each is None else each.clone() for each in tensors)
        self._known = [*self._known[1 - self.MOST :], (_Source(shape, kept), view)]
        return view


def _facts(call: AnyCall) -> tuple[object, ...]:
    if isinstance(call, MatrixCall):
        return ("matrix",)
    return call.causal, call.window, call.softcap, call.sinks is None, call.kv_heads


def _same(one: Tensor | None, two: Tensor | None) -> bool:
    if one is None or two is None:
        return one is two
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if all(map(_in_words, (one, two))):  # compared eight flags at a time
        return torch.equal(one.view(torch.int64), two.view(torch.int64))
    return torch.equal(one, two)


def _in_words(mask: Tensor) -> bool:
    """Whether its rows are whole words of eight flags; a view of a larger mask may begin within a word."""
    whole = mask.dim() > 0 and mask.shape[-1] % 8 == 0 and mask.storage_offset() % 8 == 0
    return mask.dtype == torch.bool and whole and mask.is_contiguous()


def look(
    call: AnyCall,
    rows: Tensor,
    *,
    hidden: Tensor | None = None,
    lengths: list[int] | None = None,
    block: int | None = None,
) -> View:
    """The view of some rows (increasing numbers of queries) of a call.

    lengths: how many rows of each prompt are real, for causal models padded on the right and given no mask.
    """
    keys, queries = call.keys, call.queries
    group = call.heads // call.kv_heads if isinstance(call, Call) else call.heads
    block = block or rows_per_block(group * keys)
    positions = rows + call.first
    seen, bias = _split(call.mask, queries)
    if isinstance(call, Call):
        if call.bias is not None:
            given = call.bias.expand(-1, -1, queries, -1)
            bias = given if bias is None else bias + given
        if seen is None and (call.windowed or hidden is not None):
            seen = _by_position(call, rows.device)
    if hidden is not None:
        seen = ~hidden if seen is None else seen & ~hidden
    if seen is not None:
        whole = seen.expand(call.batch, -1, -1, -1)[..., :keys]
        plans = [mask_plan(each, rows, dtype=call.dtype, block=block) for each in whole]
        if lengths is not None and call.mask is None:
            plans = [_cut(plan, length) for plan, length in zip(plans, lengths, strict=True)]
    elif not (isinstance(call, Call) and call.causal):
        plans = [open_plan(rows, keys, block=block)] * call.batch
    elif lengths is None or len(rows) < queries:
        plans = [causal_plan(positions, keys, dtype=call.dtype, block=block)] * call.batch
    else:
        plans = [causal_plan(positions[:length], keys, dtype=call.dtype, block=block) for length in lengths]
    if bias is not None and len(rows) < queries:
        bias = bias[:, :, rows]
    blind = seen is not None and not bool(seen[..., :keys].any(-1).all())
    return View(plans, positions, bias, _words(call, bias, hidden), blind)


def _by_position(call: Call, device: torch.device) -> Tensor:
    """(1, 1, Sq, Sk): what a causal or windowed call without a mask lets each query see."""
    query = torch.arange(call.first, call.first + call.queries, device=device)[:, None]
    back = query - torch.arange(call.keys, device=device)
    seen = back >= 0 if call.causal or call.queries == 1 else torch.ones_like(back, dtype=torch.bool)
    if call.windowed and call.window is not None:
        seen = seen & (back < call.window) & (back > -call.window)
    return seen[None, None]


def _cut(plan: Plan, length: int) -> Plan:
    """The plan's first rows only; blocks lie in order."""
    blocks = []
    for block in plan.blocks:
        if block.start >= length:
            break
        stop = min(block.stop, length)
        edges = tuple((first, last, keep[:, : stop - block.start]) for first, last, keep in block.edges)
        blocks.append(Block(block.start, stop, block.first, block.last, edges))
    return Plan(tuple(blocks), plan.visible[:, :length])


def _split(mask: Tensor | None, queries: int) -> tuple[Tensor | None, Tensor | None]:
    """A mask (B or 1, H or 1, Sq or 1, Sk) as: which keys are seen, and what is added to their scores."""
    if mask is None:
        return None, None
    mask = mask.expand(-1, -1, queries, -1)
    if mask.dtype == torch.bool:
        return mask, None
    hidden = mask <= HIDING
    seen = ~hidden
    if bool((mask[seen] == 0).all()):
        return seen, None
    return seen, mask.masked_fill(hidden, 0)


def _words(call: AnyCall, bias: Tensor | None, hidden: Tensor | None) -> str:
    if isinstance(call, MatrixCall):
        return "the model's own weights"
    words = ["mask" if call.mask is not None else "causal" if call.causal else "open"]
    if call.window is not None:
        words.append(f"window {call.window}" + (" without a mask" if call.windowed else ""))
    if call.softcap is not None:
        words.append(f"softcap {call.softcap:g}")
    if call.sinks is not None:
        words.append("sinks")
    if bias is not None:
        words.append("bias")
    if hidden is not None:
        return ", ".join(words) + HIDDEN
    return ", ".join(words)


def rows_per_block(scores_per_row: int) -> int:
    """Rows whose scores fit the cache nearest to a core that they can fit; fewer than 32 waste the products."""
    return max(32, min(128, (3 << 19) // max(1, scores_per_row) // 32 * 32))


def causal_plan(positions: Tensor, keys: int, *, dtype: torch.dtype, block: int) -> Plan:
    """A row at position p of `positions` (increasing) sees the keys 0 to p."""
    triangle = torch.ones(1, block, block, dtype=dtype, device=positions.device).tril()
    places = positions.tolist()
    blocks = []
    for start in range(0, len(places), block):
        stop = min(start + block, len(places))
        low, high = places[start], places[stop - 1] + 1
        if high - low == stop - start:  # neighbours: all such blocks share one triangle
            keep = triangle[:, : stop - start, : high - low]
        else:
            keep = (torch.arange(low, high, device=positions.device) <= positions[start:stop, None])[None].to(dtype)
        blocks.append(Block(start, stop, 0, high, ((low, high, keep),)))
    return Plan(tuple(blocks), (positions + 1).clamp(max=keys)[None])


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
        masked = _masked_block(part, start, stop, dtype)
        if masked is not None:
            blocks.append(masked)
    return Plan(tuple(blocks), torch.cat(visible, -1))


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
