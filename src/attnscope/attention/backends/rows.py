"""A few rows: torch's own attention for the output, an exact softmax for the rows that are read."""

from __future__ import annotations

from dataclasses import replace

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from attnscope.attention.ask import Ask
from attnscope.attention.backends.backend import Backend, Result
from attnscope.attention.backends.blocked import BLOCKED
from attnscope.attention.call import AnyCall, Call
from attnscope.attention.view import View


class Rows(Backend):
    """The cheapest way for query groups such as `last`."""

    name = "rows"
    priority = 10

    def unsupported(self, call: AnyCall, view: View, ask: Ask) -> str | None:
        if not isinstance(call, Call):
            return "the model does not show queries and keys"
        if not ask.few(call.queries):
            return "many rows are read"
        if ask.output and (not call.native or ask.edit is not None or "hidden" in view.kind):
            return "torch's own attention does not compute this output"
        return None

    def attend(self, call: AnyCall, view: View, ask: Ask) -> Result:
        assert isinstance(call, Call)  # noqa: S101  (see unsupported)
        values = BLOCKED.attend(call, view, replace(ask, output=False)).values
        return Result(values, sdpa(call) if ask.output else None)


def sdpa(call: Call) -> Tensor:
    """(B, Sq, H, Dv): what torch's own attention gives, called as transformers calls it."""
    grouped = call.heads != call.kv_heads
    key, value = call.key, call.value
    native = call.mask is None and key.shape[-1] == value.shape[-1]
    if grouped and not native:
        repeats = call.heads // call.kv_heads
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    output = F.scaled_dot_product_attention(
        call.query,
        key,
        value,
        attn_mask=call.mask,
        scale=call.scale,
        is_causal=call.causal and call.mask is None,
        enable_gqa=grouped and native,
    )
    return output.transpose(1, 2).contiguous()


ROWS = Rows()
