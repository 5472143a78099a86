"""The full matrix of one layer: slow, simple, and the only way for models that show nothing but their weights."""

from __future__ import annotations

import torch
from torch import Tensor

from attnscope.attention.ask import Ask
from attnscope.attention.backends.backend import Backend, Result
from attnscope.attention.call import AnyCall, Call, MatrixCall
from attnscope.attention.reduce import reduce_matrix
from attnscope.attention.view import View


class Reference(Backend):
    """Builds the matrix, or takes the model's own, and applies each measure's declared reference to it."""

    name = "reference"
    priority = -10

    def unsupported(self, call: AnyCall, view: View, ask: Ask) -> str | None:
        if isinstance(call, MatrixCall) and ask.edit is not None:
            return "the model does not show queries and keys, so its attention can't be edited"
        return (
            None
            if len(view.positions) == call.queries or isinstance(call, MatrixCall)
            else "only some rows are in view"
        )

    def attend(self, call: AnyCall, view: View, ask: Ask) -> Result:
        if isinstance(call, MatrixCall):
            return Result(reduce_matrix(ask, call.weights.to(call.dtype), view.positions), None)
        matrix = attention_matrix(call, view)
        if ask.edit is not None:
            k = torch.arange(call.keys, device=call.device)
            every = range(call.heads)
            edited = [ask.edit(each, prompt, every, view.positions, k) for prompt, each in enumerate(matrix)]
            matrix = torch.stack(edited)
        output = attention_output(call, matrix) if ask.output else None
        return Result(reduce_matrix(ask, matrix, view.positions), output)


def attention_matrix(call: Call, view: View) -> Tensor:
    """(B, H, Sq, Sk): softmax over the keys that each query sees. Differentiable."""
    key = call.key.to(call.dtype).repeat_interleave(call.heads // call.kv_heads, 1)
    scores = call.query.to(call.dtype) @ key.transpose(-1, -2) * call.scale
    if call.softcap:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    if view.bias is not None:
        scores = scores + view.bias.to(scores.dtype)
    scores = scores.masked_fill(~dense(view, call.keys), float("-inf"))
    if call.sinks is not None:
        sinks = call.sinks.to(scores.dtype).view(1, -1, 1, 1).expand(call.batch, -1, call.queries, 1)
        return torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]
    return torch.softmax(scores, -1)


def attention_output(call: Call, matrix: Tensor) -> Tensor:
    """(B, Sq, H, Dv)."""
    value = call.value.to(matrix.dtype).repeat_interleave(call.heads // call.kv_heads, 1)
    return (matrix @ value).transpose(1, 2).contiguous().to(call.query.dtype)


def dense(view: View, keys: int) -> Tensor:
    """(B, heads or 1, rows, keys): True where a row sees a key. Rows that see nothing, such as pads, see all."""
    rows = len(view.positions)
    prompts = []
    for plan in view.plans:
        heads = len(plan.visible)
        seen = torch.zeros(heads, rows, keys, dtype=torch.bool, device=view.positions.device)
        for block in plan.blocks:
            part = block.seen(heads, plan.visible.to(torch.float32)) > 0
            seen[:, block.start : block.stop, block.first : block.last] = part
        prompts.append(seen | ~seen.any(-1, keepdim=True))
    most = max(map(len, prompts))
    return torch.stack([each.expand(most, -1, -1) for each in prompts])


REFERENCE = Reference()
