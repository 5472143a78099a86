"""The model as it runs: what it computes with its own attention implementation, beside eager attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.forward import hidden_of, without_extras
from attnscope.attention.interface import quiet
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
