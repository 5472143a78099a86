"""The model as it runs: what it computes with its own attention implementation, beside eager attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.call import Call
from attnscope.attention.comparison import COARSE, UNKNOWN
from attnscope.attention.forward import hidden_of, without_extras
from attnscope.attention.interface import quiet
from attnscope.attention.recorder import plain_output
from attnscope.errors import AttnscopeError


def own_output(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Tensor | None:
    """What the model gives as it is; None if its own attention can't run here: on this device, in this format."""
    try:
        with quiet(model):
            return hidden_of(model.base_model(**without_extras(model, inputs)))
    except Exception:
        return None


def refuse_other_attention(
    model: PreTrainedModel, name: str, own: Tensor | None, eager: Tensor | None, real: Tensor, *, limit: float
) -> None:
    """Refuse a model whose own attention implementation computes something else than its eager one.

    Everything else is compared with eager attention; what counts is the model as it runs. real (B, tokens): False at
    pads, whose rows implementations fill as they like. limit: of eager's largest number.
    """
    if own is None or eager is None or own.shape != eager.shape or own.shape[:2] != real.shape:
        return
    rows = real.to(own.device)
    apart, scale = largest(own[rows] - eager[rows]), largest(eager[rows])
    if not apart <= limit * scale:
        used = model.config._attn_implementation
        what = (
            f"{name} computes something else with its own attention implementation, '{used}', "
            f"than with eager attention: its output differs by {apart:.1e}{'' if real.all() else ' beside pads'}"
        )
        raise _differs(what, scale, limit)


def changed_forward(
    model: PreTrainedModel, name: str, own: Tensor | None, recorded: Tensor | None, *, limit: float
) -> AttnscopeError | None:
    """The error for a model that computes something else while it is recorded, be it in the rows of pads alone."""
    if own is None or recorded is None or own.shape != recorded.shape:
        return None
    finite = own.isfinite()
    apart, scale = largest((own - recorded)[finite]), largest(own[finite])
    if apart <= limit * scale and torch.equal(finite, recorded.isfinite()):
        return None
    what = (
        f"{name} computes something else while it is recorded: its output differs by {apart:.1e} from what it is under "
        f"its own attention implementation, '{model.config._attn_implementation}'"
    )
    return _differs(what, scale, limit)


def refuse_other_function(name: str, layer: int, call: Call, made: Tensor, read: Tensor, *, proven: int) -> None:
    """Refuse a registered attention function that makes something else of queries and keys than attention does.

    made: its output. read (B, Sq): the rows that are read; those of pads are up to the function. proven: as many keys
    were compared without dropout.
    """
    where = f"layer {layer}, {call.keys} keys"
    if call.dropout and call.keys <= proven:
        return
    if call.dropout:
        raise AttnscopeError(
            f"the attention function of {name} can't be compared with attention while it drops weights",
            where=where,
            allowed=f"at most {proven} keys, or no dropout of attention",
            todo="call model.eval(), or set the dropout to 0",
        )
    with torch.no_grad():
        want = plain_output(replace(call, own_output=False, foreign=False))
    rows, apart, scale = read.to(made.device), float("inf"), 0.0
    if want is not None and want.numel() == made.numel():
        apart, scale = largest((made.detach().reshape(want.shape) - want)[rows]), largest(want[rows])
    narrow = call.query.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled(call.device.type)
    limit = COARSE if narrow else UNKNOWN
    if not apart <= limit * scale:
        raise AttnscopeError(
            f"the attention function of {name} computes something else than attention: its output differs by "
            f"{apart:.1e}",
            where=where,
            allowed=f"at most {limit:g} of its largest number, {scale:.1e}",
            todo="load the model with attn_implementation='sdpa' or 'eager'",
        )


def largest(values: Tensor) -> float:
    """The largest absolute number; NaN if one is, 0 of none."""
    return float(values.float().abs().max()) if values.numel() else 0.0


def _differs(what: str, scale: float, limit: float) -> AttnscopeError:
    return AttnscopeError(
        what,
        where="model",
        allowed=f"at most {limit:g} of its largest number, {scale:.1e}",
        todo="load the model with attn_implementation='eager'",
    )
