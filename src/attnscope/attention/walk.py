"""The inner loop of the kernel: blocks of scores -> output, received and entropy.

Compiled as TorchScript, because its threads then need not queue for Python's lock between operations; where TorchScript
is no more the same function runs as plain Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def compiled() -> Callable[..., None]:
    """`walk`, compiled if that can be done."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            script: Callable[..., Any] = torch.jit.script
            made: Callable[..., None] = script(walk)
        except (AttributeError, RuntimeError):
            return walk
    return made


def walk(
    query: Tensor,  # (B, Hkv, G, Sq, D)
    key: Tensor,  # (B, Hkv * parts, D, Sk): each kv head `parts` times
    value: Tensor | None,  # (B, Hkv * parts, Sk, Dv)
    parts: int,  # into how many products a kv head's rows are cut, so that all threads have some
    weights: Tensor,  # (B, m, Sq)
    sinks: Tensor | None,  # (Hkv, G)
    bias: Tensor | None,  # (B or 1, H or 1, Sq, Sk)
    safe: list[bool],  # (Hkv,): exp of the scores can't leave its range
    scale: float,
    softcap: float,  # 0 for none
    tasks: list[tuple[int, int, int, int, int, int, int, list[tuple[int, int, Tensor]]]],  # see kernel.Task
    scratch: list[Tensor],
    received: Tensor,  # (B, Hkv, G, m, Sk), added to
    output: Tensor | None,  # (B, Sq, Hkv, G, Dv), written to
    entropy: Tensor | None,  # (B, Hkv, G, m), added to
    pairs: list[tuple[Tensor, Tensor, Tensor]],  # see patterns.Pairs, one a prompt
    patterns: Tensor | None,  # (B, Hkv, G, patterns, m), added to
) -> None:
    """One worker's tasks in turn: a block of one prompt's rows, for J kv heads with the G query heads of each."""
    group, width = query.shape[2], query.shape[4]
    for prompt, head, beyond, start, stop, first, last, edges in tasks:
        many, rows, keys = beyond - head, stop - start, last - first
        scaled = scratch[1][: many * group * rows * width].view(many, group, rows, width)
        scaled.copy_(query[prompt, head:beyond, :, start:stop]).mul_(scale / softcap if softcap > 0 else scale)
        flat = scratch[0][: many * group * rows * keys].view(many, group * rows, keys)
        cut = parts if group * rows % parts == 0 else 1
        batch, tall = many * cut, group * rows // cut
        copies = slice(head * parts, beyond * parts, parts // cut)
        held_keys = key[prompt, copies, :, first:last]
        torch.bmm(scaled.view(batch, tall, width), held_keys, out=flat.view(batch, tall, keys))
        block = flat.view(many * group, rows, keys)
        if softcap > 0:
            block.tanh_().mul_(softcap)
        if bias is not None:
            added = of_heads(bias[min(prompt, bias.shape[0] - 1)], head * group, beyond * group)
            block.add_(added[:, start:stop, first:last])
        sink = None if sinks is None else sinks[head:beyond].flatten().unsqueeze(-1)  # (J * G, 1)
        sums, totals = weigh(block, all(safe[head:beyond]), sink, edges, first, head * group, beyond * group)

        if value is not None and output is not None:
            depth = value.shape[3]
            out = scratch[2][: many * group * rows * depth].view(many, group * rows, depth)
            held_values = value[prompt, copies, first:last]
            torch.bmm(flat.view(batch, tall, keys), held_values, out=out.view(batch, tall, depth))
            out.div_(totals.view(many, group * rows, 1))
            output[prompt, start:stop, head:beyond].copy_(out.view(many, group, rows, depth).permute(2, 0, 1, 3))
        share = weights[prompt, :, start:stop]  # (m, rows)
        found = scratch[4][: many * group * share.shape[0] * keys].view(many * group, share.shape[0], keys)
        torch.bmm(share.unsqueeze(0) / totals.unsqueeze(1), block, out=found)
        received[prompt, head:beyond, :, :, first:last].add_(found.view(many, group, share.shape[0], keys))
        if entropy is not None:
            logs = scratch[3][: many * group * rows * keys].view(many * group, rows, keys)
            torch.xlogy(block, block, out=logs)
            nats = sums.log() - logs.sum(-1) / sums
            entropy[prompt, head:beyond].add_(torch.matmul(nats, share.t()).view(many, group, -1))
        if patterns is not None:
            count = patterns.shape[3]
            held = pair_sums(block, pairs[prompt], count, start, first).div_(totals.unsqueeze(1))
            patterns[prompt, head:beyond].add_(torch.matmul(held, share.t()).view(many, group, count, -1))


def pair_sums(
    block: Tensor,  # (heads, rows, keys)
    pairs: tuple[Tensor, Tensor, Tensor],  # queries (sorted), keys, patterns
    count: int,
    start: int,
    first: int,
) -> Tensor:
    """(heads, patterns, rows): each row's sum over a pattern's keys. The block begins at query `start`, key `first`."""
    heads, rows, keys = block.shape
    low = int(torch.searchsorted(pairs[0], start).item())
    high = int(torch.searchsorted(pairs[0], start + rows).item())
    row, key, pattern = pairs[0][low:high] - start, pairs[1][low:high] - first, pairs[2][low:high]
    inside = (key >= 0) & (key < keys)
    row, key, pattern = row[inside], key[inside], pattern[inside]
    sums = torch.zeros(heads, count * rows, dtype=block.dtype, device=block.device)
    sums.index_add_(1, pattern * rows + row, block[:, row, key])
    return sums.view(heads, count, rows)


def weigh(
    block: Tensor,  # (heads, rows, keys): scores in, weights out
    safe: bool,
    sink: Tensor | None,  # (heads, 1)
    edges: list[tuple[int, int, Tensor]],
    first: int,
    low_head: int,
    high_head: int,
) -> tuple[Tensor, Tensor]:
    """Scores to weights, in place; each row's sum of weights (heads, rows), without the sink's and with it."""
    if safe:
        block.exp_()
        for low, high, keep in edges:
            block[:, :, low - first : high - first].mul_(of_heads(keep, low_head, high_head))
        sums = block.sum(-1)
        return sums, sums if sink is None else sums + sink.exp()
    for low, high, keep in edges:
        hidden = of_heads(keep, low_head, high_head) == 0
        block[:, :, low - first : high - first].masked_fill_(hidden, float("-inf"))
    sums = torch.ones(block.shape[:2], dtype=block.dtype, device=block.device)
    totals = sums if sink is None else 1 + (sink - block.logsumexp(-1)).exp()
    torch._softmax(block, -1, False, out=block)
    return sums, totals


def of_heads(tensor: Tensor, low: int, high: int) -> Tensor:
    """The query heads `[low, high)` of a tensor (H or 1, ...)."""
    return tensor if tensor.shape[0] == 1 else tensor[low:high]
