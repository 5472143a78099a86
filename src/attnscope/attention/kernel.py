"""One exact pass over attention: the output, and how much of it each key receives from each group of queries.

Softmax rows are made a block at a time and summed while they are still in cache; the S x S matrix never exists. A row
is not normalised in place: its weights stay exp(score), and the row's sum divides the output and the group's weight
instead, which saves a pass over the block. Nor is its largest score subtracted where the lengths of queries and keys
show that no score can leave the range of exp; where they can't show it, the usual softmax is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.patterns import Pairs
from attnscope.attention.visibility import Edge, Plan
from attnscope.attention.walk import compiled
from attnscope.attention.workers import crew_size, fair_shares, held, run_workers
from attnscope.measures.patterns import PATTERNS

SAFE_SCORE = 60.0  # exp(60) times a million keys times a large value is still far inside float32

Task = tuple[int, int, int, int, int, int, int, list[Edge]]
"""prompt; kv heads [head, beyond); rows [start, stop); keys [first, last); edges. See visibility.Block."""


@dataclass(frozen=True)
class Gaze:
    """What a pass found. `m` is the number of query groups."""

    received: Tensor  # (batch, heads, m, keys)
    output: Tensor | None  # (batch, queries, heads, value width), the layout transformers wants
    entropy: Tensor | None  # (batch, heads, m), nats
    patterns: Tensor | None  # (batch, heads, patterns, m)


@torch.no_grad()
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    *,
    plans: Sequence[Plan],
    weights: Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    bias: Tensor | None = None,
    entropy: bool = False,
    pairs: Sequence[Pairs] = (),
) -> Gaze:
    """Query (B, H, Sq, D), key (B, Hkv, Sk, D), value (B, Hkv, Sk, Dv) or None for no output; one plan a prompt.

    weights (B, m, Sq): each group's share of each row. sinks (H,): a logit in every row whose weight no key gets.
    bias (B or 1, H or 1, Sq, Sk): added to the scores, after the softcap. pairs: of each prompt, to sum patterns over.
    """
    batch, heads, rows, width = query.shape
    kv_heads, keys = key.shape[1:3]
    group = heads // kv_heads
    dtype, device = torch.promote_types(query.dtype, torch.float32), query.device
    sinks = None if sinks is None else sinks.to(dtype).view(kv_heads, group)
    key_columns, safe = _prepared(query, key.to(dtype), scale, softcap, sinks, bias)
    workers = crew_size(heads * sum(block.cost for plan in plans for block in plan.blocks), device)
    tasks, costs = _tasks(plans, kv_heads, together=1 if workers else kv_heads)
    shares = fair_shares(costs, workers)
    counts = (len(shares), batch, kv_heads, group, weights.shape[1])
    received = torch.zeros(*counts, keys, dtype=dtype, device=device)
    entropies = torch.zeros(counts, dtype=dtype, device=device) if entropy else None
    patterns = torch.zeros(*counts[:-1], len(PATTERNS), counts[-1], dtype=dtype, device=device) if pairs else None
    given_pairs = [(each.queries, each.keys, each.patterns) for each in pairs]
    depth = 0 if value is None else value.shape[-1]
    output = None if value is None else _blank_output(query, kv_heads, depth, plans)
    parts = 1 if workers else _parts(kv_heads, rows, device)
    given = (
        query.unflatten(1, (kv_heads, group)),  # type: ignore[no-untyped-call]
        _times(key_columns, parts),
        None if value is None else _times(value.to(dtype), parts),
        parts,
        weights.to(dtype),
        sinks,
        None if bias is None else bias.to(dtype),
        safe,
        scale,
        softcap or 0.0,
    )
    sizes = _scratch_sizes(tasks, group, width, depth, weights.shape[1], entropy=entropy)

    inference = torch.is_inference_mode_enabled()

    def work(worker: int) -> None:
        with torch.inference_mode(inference), torch.no_grad():  # modes are a thread's own
            scratch = [held(size, place, dtype, device) for place, size in enumerate(sizes)]
            found = None if entropies is None else entropies[worker]
            sums = None if patterns is None else patterns[worker]
            mine = [tasks[task] for task in shares[worker]]
            compiled()(*given, mine, scratch, received[worker], output, found, given_pairs, sums)

    run_workers(work, workers)
    return Gaze(
        received=received.sum(0).flatten(1, 2),
        output=None if output is None else output.flatten(2, 3),
        entropy=None if entropies is None else entropies.sum(0).flatten(1, 2),
        patterns=None if patterns is None else patterns.sum(0).flatten(1, 2),
    )


def _prepared(
    query: Tensor, key: Tensor, scale: float, softcap: float | None, sinks: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, list[bool]]:
    """The keys as columns (B, Hkv, D, Sk), and for each kv head whether exp can take its scores as they are."""
    if query.shape[2] * 8 < key.shape[2] or bias is not None:  # too few rows for the keys' preparation to pay
        return key.transpose(-1, -2), [False] * key.shape[1]
    if softcap is None and sinks is None:
        # then softmax doesn't change when all keys move by one vector, and about their mean scores are smallest
        key = key - key.mean(2, keepdim=True)
    return key.transpose(-1, -2).contiguous(), _safe(query, key, scale, softcap, sinks)


def _blank_output(query: Tensor, kv_heads: int, depth: int, plans: Sequence[Plan]) -> Tensor:
    """(B, Sq, Hkv, G, Dv), zero for prompts with rows that no block writes to."""
    batch, heads, rows, _ = query.shape
    output = query.new_empty(batch, rows, kv_heads, heads // kv_heads, depth)
    for prompt, plan in enumerate(plans):
        if sum(block.stop - block.start for block in plan.blocks) < rows:
            output[prompt].zero_()
    return output


def _tasks(plans: Sequence[Plan], kv_heads: int, *, together: int) -> tuple[list[Task], list[int]]:
    """Every block of every prompt for `together` kv heads at a time, and what each costs."""
    tasks: list[Task] = []
    costs: list[int] = []
    for prompt, plan in enumerate(plans):
        for block in plan.blocks:
            for head in range(0, kv_heads, together):
                place = (prompt, head, head + together, block.start, block.stop, block.first, block.last)
                tasks.append((*place, list(block.edges)))
                costs.append(block.cost)
    return tasks, costs


def _scratch_sizes(
    tasks: Sequence[Task], group: int, width: int, depth: int, groups: int, *, entropy: bool
) -> tuple[int, ...]:
    """How many numbers the largest task needs: scores, scaled queries, output, logs for entropy, what was received."""
    rows = [(beyond - head) * group * (stop - start) for _, head, beyond, start, stop, _, _, _ in tasks]
    scores = max((many * (task[6] - task[5]) for many, task in zip(rows, tasks, strict=True)), default=0)
    most = max(rows, default=0)
    found = max(((task[2] - task[1]) * group * groups * (task[6] - task[5]) for task in tasks), default=0)
    return scores, most * width, most * depth, scores if entropy else 0, found


def _parts(kv_heads: int, rows: int, device: torch.device) -> int:
    """Into how many products to cut each kv head's rows, so that torch's threads get equal shares of them."""
    threads = torch.get_num_threads() if device.type == "cpu" and rows > 1 else 1
    return min(8, threads // math.gcd(kv_heads, threads))


def _times(of_heads: Tensor, parts: int) -> Tensor:
    """Every kv head (B, Hkv, ...) so many times in a row."""
    return of_heads.repeat_interleave(parts, 1) if parts > 1 else of_heads


def _safe(query: Tensor, key: Tensor, scale: float, softcap: float | None, sinks: Tensor | None) -> list[bool]:
    """For each kv head: can none of its scores be beyond SAFE_SCORE? |q . k| is at most |q| |k|."""
    of_queries = torch.linalg.vector_norm(query, dim=-1, dtype=key.dtype).amax(-1)  # (B, H)
    longest = of_queries.unflatten(1, (key.shape[1], -1)).amax(-1)  # (B, Hkv)
    bound = (longest * torch.linalg.vector_norm(key, dim=-1).amax(-1) * abs(scale)).amax(0)
    if softcap:
        bound = bound.clamp(max=softcap)
    if sinks is not None:
        bound = bound.maximum(sinks.abs().amax(-1))
    return [limit <= SAFE_SCORE for limit in bound.tolist()]
