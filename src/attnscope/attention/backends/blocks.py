"""The inner loop of the blocked backend: scores of a block of rows -> weights -> output and attention received.

The loop over tasks is compiled as TorchScript, because its threads then need not queue for Python's lock between
operations. Where that fails the same functions run as plain Python, and the evidence says so.
"""

# No `from __future__ import annotations`: TorchScript reads the fields' types.

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, List, NamedTuple, Optional, Tuple  # noqa: UP035

import torch
from torch import Tensor

Edge = Tuple[int, int, Tensor]  # noqa: UP006


class Inputs(NamedTuple):
    """What all blocks of a call share. A kv head stands for the G query heads that use it."""

    query: Tensor  # (B, Hkv, G, rows, D)
    key: Tensor  # (B, Hkv * parts, D, Sk): each kv head `parts` times
    value: Optional[Tensor]  # (B, Hkv * parts, Sk, Dv); None for no output  # noqa: UP045
    bias: Optional[Tensor]  # (B or 1, H or 1, rows, Sk)  # noqa: UP045
    sinks: Optional[Tensor]  # (Hkv, G)  # noqa: UP045
    weights: Tensor  # (B, m, rows)
    safe: List[bool]  # (Hkv,): exp of the scores can't leave its range  # noqa: UP006
    parts: int  # into how many products a kv head's rows are cut, so that all threads have some
    scale: float
    softcap: float  # 0 for none


class Task(NamedTuple):
    """A block of one prompt's rows for the kv heads `[head, beyond)`; see view.Block."""

    prompt: int
    head: int
    beyond: int
    start: int
    stop: int
    first: int
    last: int
    edges: List[Edge]  # noqa: UP006
    groups: Optional[Tensor]  # the query groups that have some of the rows; None for all of them  # noqa: UP045


class Scratch(NamedTuple):
    """Buffers that a worker uses for every block, each as large as its largest block needs."""

    scores: Tensor
    scaled: Tensor
    output: Tensor
    received: Tensor


def weigh(inputs: Inputs, task: Task, scratch: Scratch) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    """A block's weights (heads, rows, keys), not yet normalised, and each row's sum with its sink (heads, rows)."""
    group, width = inputs.query.shape[2], inputs.query.shape[4]
    many, rows, keys = task.beyond - task.head, task.stop - task.start, task.last - task.first
    softcap, safe = inputs.softcap, all(inputs.safe[task.head : task.beyond])
    unit = 1.4426950408889634 if safe else 1.0  # log2(e): exp2 is up to three times as fast as exp
    scaled = scratch.scaled[: many * group * rows * width].view(many, group, rows, width)
    scaled.copy_(inputs.query[task.prompt, task.head : task.beyond, :, task.start : task.stop])
    scaled.mul_(inputs.scale / softcap if softcap > 0 else inputs.scale * unit)
    flat = scratch.scores[: many * group * rows * keys].view(many, group * rows, keys)
    batch, tall, step = products(inputs, task, many, group * rows)
    copies = slice(task.head * inputs.parts, task.beyond * inputs.parts, step)
    held_keys = inputs.key[task.prompt, copies, :, task.first : task.last]
    torch.bmm(scaled.view(batch, tall, width), held_keys, out=flat.view(batch, tall, keys))
    block = flat.view(many * group, rows, keys)
    if softcap > 0:
        block.tanh_().mul_(softcap * unit)
    low, high = task.head * group, task.beyond * group
    bias = inputs.bias
    if bias is not None:
        added = of_heads(bias[min(task.prompt, bias.shape[0] - 1)], low, high)
        block.add_(added[:, task.start : task.stop, task.first : task.last], alpha=unit)
    sinks = inputs.sinks
    sink = None if sinks is None else sinks[task.head : task.beyond].flatten().unsqueeze(-1)  # (heads, 1)
    if safe:
        block.exp2_()
        for edge in task.edges:
            block[:, :, edge[0] - task.first : edge[1] - task.first].mul_(of_heads(edge[2], low, high))
        sums = block.sum(-1)
        return block, sums if sink is None else sums + sink.exp()
    for edge in task.edges:
        hidden = of_heads(edge[2], low, high) == 0
        block[:, :, edge[0] - task.first : edge[1] - task.first].masked_fill_(hidden, float("-inf"))
    totals = torch.ones(block.shape[:2], dtype=block.dtype, device=block.device)
    if sink is not None:
        totals = 1 + (sink - block.logsumexp(-1)).exp()
    torch._softmax(block, -1, False, out=block)
    return block, totals


def products(inputs: Inputs, task: Task, many: int, tall: int) -> Tuple[int, int, int]:  # noqa: UP006
    """How many products a block is cut into, the rows of each, and the step from one copy of a kv head to the next."""
    cut = inputs.parts if tall % inputs.parts == 0 else 1
    return many * cut, tall // cut, inputs.parts // cut


def write_output(inputs: Inputs, task: Task, scratch: Scratch, block: Tensor, totals: Tensor, output: Tensor) -> None:
    """Output (B, rows, Hkv, G, Dv): the block's rows are written."""
    value = inputs.value
    assert value is not None  # noqa: S101  (TorchScript needs it)
    group, depth = inputs.query.shape[2], value.shape[3]
    many, rows, keys = task.beyond - task.head, task.stop - task.start, task.last - task.first
    batch, tall, step = products(inputs, task, many, group * rows)
    copies = slice(task.head * inputs.parts, task.beyond * inputs.parts, step)
    out = scratch.output[: many * group * rows * depth].view(many, group * rows, depth)
    held_values = value[task.prompt, copies, task.first : task.last]
    torch.bmm(block.view(batch, tall, keys), held_values, out=out.view(batch, tall, depth))
    out.div_(totals.view(many, group * rows, 1))
    place = output[task.prompt, task.start : task.stop, task.head : task.beyond]
    place.copy_(out.view(many, group, rows, depth).permute(2, 0, 1, 3))


def add_received(inputs: Inputs, task: Task, scratch: Scratch, block: Tensor, totals: Tensor, received: Tensor) -> None:
    """Received (B, Hkv, G, m, Sk): what the block's keys receive is added."""
    share = inputs.weights[task.prompt, :, task.start : task.stop]  # (m, rows)
    groups = task.groups
    if groups is not None:
        share = share.index_select(0, groups)
    heads, keys, many = block.shape[0], block.shape[2], share.shape[0]
    part = scratch.received[: heads * many * keys].view(heads, many, keys)
    torch.bmm(share.unsqueeze(0) / totals.unsqueeze(1), block, out=part)
    place = received[task.prompt, task.head : task.beyond, :, :, task.first : task.last]
    added = part.view(task.beyond - task.head, inputs.query.shape[2], many, keys)
    if groups is None:
        place.add_(added)
    else:
        place.index_add_(2, groups, added)


def run_tasks(
    inputs: Inputs,
    tasks: List[Task],  # noqa: UP006
    scratch: Scratch,
    received: Tensor,
    output: Optional[Tensor],  # noqa: UP045
) -> None:
    """One worker's tasks in turn."""
    for task in tasks:
        block, totals = weigh(inputs, task, scratch)
        if output is not None:
            write_output(inputs, task, scratch, block, totals, output)
        add_received(inputs, task, scratch, block, totals, received)


def of_heads(tensor: Tensor, low: int, high: int) -> Tensor:
    """The query heads `[low, high)` of a tensor (H or 1, ...)."""
    return tensor if tensor.shape[0] == 1 else tensor[low:high]


@cache
def compiled() -> Tuple[Callable[..., None], Optional[str]]:  # noqa: UP006, UP045
    """`run_tasks`, compiled if that can be done; otherwise as it is, with the reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            script: Callable[..., Any] = torch.jit.script
            return script(run_tasks), None
        except Exception as error:
            return run_tasks, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
