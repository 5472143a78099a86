"""All rows, exactly, in one pass: the output, and what each measure says of the weights, without the S x S matrix.

Softmax rows are made a block at a time and summed while they are still in cache. A row is not normalised in place: its
weights stay exp(score), and the row's sum divides the output and the group's weight instead, which saves a pass over
the block. Nor is its largest score subtracted where the lengths of queries and keys show that no score can leave the
range of exp; where they can't show it, the usual softmax is taken. Measures other than `received`, and edits, take the
normalised weights of each block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.ask import Ask
from attnscope.attention.backends import blocks
from attnscope.attention.backends.backend import Backend, Result
from attnscope.attention.backends.blocks import Inputs, Scratch, Task
from attnscope.attention.call import AnyCall, Call
from attnscope.attention.reduce import reduce_block
from attnscope.attention.view import Plan, View
from attnscope.attention.workers import crew_size, fair_shares, kept_buffer, run_workers
from attnscope.measures import KEY

RECEIVED_PLACE = 4  # of kept buffers; those before it are Scratch's
MANY_GROUPS = 8  # with fewer, products of all groups with each block cost next to nothing
SAFE_SCORE = 60.0  # exp(60) times a million keys times a large value is still far inside float32


class Blocked(Backend):
    """The pass for many rows, on a CPU or any device torch runs on."""

    name = "blocked"
    priority = 0

    def unsupported(self, call: AnyCall, view: View, ask: Ask) -> str | None:
        if not isinstance(call, Call):
            return "the model does not show queries and keys"
        if ask.output and len(ask.rows) < call.queries:
            return "the output is needed of rows that are not read"
        return None

    @torch.no_grad()
    def attend(self, call: AnyCall, view: View, ask: Ask) -> Result:
        assert isinstance(call, Call)  # noqa: S101  (see unsupported)
        work = _Pass.of(call, view, ask)
        received = work.received()
        inference = torch.is_inference_mode_enabled()
        run_tasks, _ = blocks.compiled()
        values = {each.name: work.zeros(each.axes) for each in ask.measures} if not ask.plain else {}

        def run(share: int) -> None:
            with torch.inference_mode(inference), torch.no_grad():  # modes are a thread's own
                tasks = [work.tasks[task] for task in work.shares[share]]
                received[share].zero_()
                if ask.plain:
                    run_tasks(work.inputs, tasks, work.scratch(), received[share], work.output)
                else:
                    totals = {name: each[share].flatten(1, 2) for name, each in values.items()}
                    _general(work, tasks, ask, view, totals)

        run_workers(run, len(work.shares), work.workers)
        if ask.plain:
            values = {each.name: received for each in ask.measures}
        sums = {name: each.sum(0).flatten(1, 2) for name, each in values.items()}
        return Result(sums, None if work.output is None else work.output.flatten(2, 3))


def _general(work: _Pass, tasks: Sequence[Task], ask: Ask, view: View, totals: dict[str, Tensor]) -> None:
    """Blocks with measures of any kind and edits: weights are normalised, then everything is computed from them."""
    scratch, group = work.scratch(), work.inputs.query.shape[2]
    for task in tasks:
        block, sums = blocks.weigh(work.inputs, task, scratch)
        block.div_(sums.unsqueeze(-1))
        heads = slice(task.head * group, task.beyond * group)
        if ask.edit is not None:
            k = torch.arange(task.first, task.last, device=block.device)
            q = view.positions[task.start : task.stop]
            edited = ask.edit(block, task.prompt, range(heads.start, heads.stop), q, k)
            block.copy_(edited)
        if work.output is not None:
            ones = torch.ones_like(sums)
            blocks.write_output(work.inputs, task, scratch, block, ones, work.output)
        reduce_block(
            ask,
            totals,
            block,
            prompt=task.prompt,
            heads=heads,
            rows=(task.start, task.stop),
            keys=(task.first, task.last),
            positions=view.positions,
            groups=task.groups,
        )


@dataclass(frozen=True)
class _Pass:
    """One pass over a call: its blocks shared out over workers, and where they write."""

    inputs: Inputs
    tasks: list[Task]
    shares: list[list[int]]
    workers: int
    output: Tensor | None
    """(B, rows, Hkv, G, Dv)."""

    @classmethod
    def of(cls, call: Call, view: View, ask: Ask) -> _Pass:
        query = call.query if len(ask.rows) == call.queries else call.query[:, :, ask.rows]
        sinks = None if call.sinks is None else call.sinks.to(call.dtype).view(call.kv_heads, -1)
        key_columns, safe = _prepared(call, query, sinks, view.bias)
        workers = crew_size(call.heads * sum(block.cost for plan in view.plans for block in plan.blocks), call.device)
        weights = ask.weights.to(call.device, call.dtype)
        tasks, costs = _tasks(view.plans, weights, call.kv_heads, together=1 if workers else call.kv_heads)
        parts = 1 if workers else _parts(call.kv_heads, query.shape[2], call.device)
        inputs = Inputs(
            query=query.unflatten(1, (call.kv_heads, -1)),  # type: ignore[no-untyped-call]
            key=_times(key_columns, parts),
            value=_times(call.value.to(call.dtype), parts) if ask.output else None,
            bias=None if view.bias is None else view.bias.to(call.dtype),
            sinks=sinks,
            weights=weights,
            safe=safe,
            parts=parts,
            scale=call.scale,
            softcap=call.softcap or 0.0,
        )
        output = _blank_output(call, query, view.plans) if ask.output else None
        return cls(inputs, tasks, fair_shares(costs, workers), workers, output)

    def zeros(self, axes: tuple[str, ...]) -> Tensor:
        """(shares, B, Hkv, G, m[, Sk])."""
        batch, kv_heads, group = self.inputs.query.shape[:3]
        groups, keys = self.inputs.weights.shape[1], self.inputs.key.shape[-1]
        shape = (len(self.shares), batch, kv_heads, group, groups, *((keys,) if axes == KEY else ()))
        return self.inputs.weights.new_zeros(shape)

    def received(self) -> Tensor:
        """(shares, B, Hkv, G, m, Sk), in memory that this thread keeps; each share has to be cleared."""
        batch, kv_heads, group = self.inputs.query.shape[:3]
        like, keys = self.inputs.weights, self.inputs.key.shape[-1]
        shape = (len(self.shares), batch, kv_heads, group, like.shape[1], keys)
        size = math.prod(shape)
        return kept_buffer(size, RECEIVED_PLACE, like.dtype, like.device)[:size].view(shape)

    def scratch(self) -> Scratch:
        """Buffers of this thread for the largest task."""
        group, width = self.inputs.query.shape[2], self.inputs.query.shape[4]
        groups = self.inputs.weights.shape[1]
        depth = 0 if self.inputs.value is None else self.inputs.value.shape[-1]
        heads = [(task.beyond - task.head) * group for task in self.tasks]
        rows = [many * (task.stop - task.start) for many, task in zip(heads, self.tasks, strict=True)]
        scores = [many * (task.last - task.first) for many, task in zip(rows, self.tasks, strict=True)]
        received = [many * groups * (task.last - task.first) for many, task in zip(heads, self.tasks, strict=True)]
        most = max(rows, default=0)
        sizes = (max(scores, default=0), most * width, most * depth, max(received, default=0))
        like = self.inputs.weights
        return Scratch(*(kept_buffer(size, place, like.dtype, like.device) for place, size in enumerate(sizes)))


def _prepared(call: Call, query: Tensor, sinks: Tensor | None, bias: Tensor | None) -> tuple[Tensor, list[bool]]:
    """The keys as columns (B, Hkv, D, Sk), and for each kv head whether exp can take its scores as they are."""
    key = call.key.to(call.dtype)
    if query.shape[2] * 8 < call.keys or bias is not None:  # too few rows for the keys' preparation to pay
        return key.transpose(-1, -2), [False] * call.kv_heads
    if call.softcap is None and sinks is None:
        # then softmax doesn't change when all keys move by one vector, and about their mean scores are smallest
        key = key - key.mean(2, keepdim=True)
    return key.transpose(-1, -2).contiguous(), _safe(query, key, call.scale, call.softcap, sinks)


def _blank_output(call: Call, query: Tensor, plans: Sequence[Plan]) -> Tensor:
    """(B, rows, Hkv, G, Dv), zero for prompts with rows that no block writes to."""
    batch, heads, rows, _ = query.shape
    output = query.new_empty(batch, rows, call.kv_heads, heads // call.kv_heads, call.value.shape[-1])
    for prompt, plan in enumerate(plans):
        if sum(block.stop - block.start for block in plan.blocks) < rows:
            output[prompt].zero_()
    return output


def _tasks(plans: Sequence[Plan], weights: Tensor, kv_heads: int, *, together: int) -> tuple[list[Task], list[int]]:
    """Every block of every prompt for `together` kv heads at a time, and what each costs. weights: (B, m, rows)."""
    tasks: list[Task] = []
    costs: list[int] = []
    for prompt, plan in enumerate(plans):
        for block in plan.blocks:
            start, stop, edges = block.start, block.stop, list(block.edges)
            groups = _groups(weights[prompt, :, start:stop])
            for head in range(0, kv_heads, together):
                tasks.append(Task(prompt, head, head + together, start, stop, block.first, block.last, edges, groups))
                costs.append(block.cost)
    return tasks, costs


def _groups(weights: Tensor) -> Tensor | None:
    """The groups that have some of these rows, if they are few enough for it to pay. weights: (m, rows)."""
    if len(weights) < MANY_GROUPS:
        return None
    groups = weights.any(1).nonzero()[:, 0]
    return groups if 2 * len(groups) <= len(weights) else None


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


BLOCKED = Blocked()
