"""The model as it runs: what it computes with its own attention implementation, beside eager attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.forward import hidden_of, without_cache
from attnscope.attention.interface import quiet
from attnscope.errors import AttnscopeError


def own_output(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Tensor | None:
    """What the model gives as it is; None if its own attention can't run here: on this device, in this format."""
    try:
        with quiet(model):
            return hidden_of(model.base_model(**without_cache(model, inputs)))
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
    apart, scale = (float(each.float().abs().max()) for each in (own[rows] - eager[rows], eager[rows]))
    if not apart <= limit * scale:
        used = model.config._attn_implementation
        raise AttnscopeError(
            f"{name} computes something else with its own attention implementation, '{used}', than with eager "
            f"attention: its output differs by {apart:.1e}{'' if real.all() else ' beside pads'}",
            where="model",
            allowed=f"at most {limit:g} of its largest number, {scale:.1e}",
            todo="load the model with attn_implementation='eager'",
        )


def changed_forward(
    model: PreTrainedModel, name: str, own: Tensor | None, recorded: Tensor | None, *, limit: float
) -> AttnscopeError | None:
    """The error for a model that computes something else while it is recorded, be it in the rows of pads alone."""
    if own is None or recorded is None or own.shape != recorded.shape:
        return None
    finite = own.isfinite()
    apart, scale = (float(each[finite].float().abs().max()) if finite.any() else 0.0 for each in (own - recorded, own))
    if apart <= limit * scale and torch.equal(finite, recorded.isfinite()):
        return None
    used = model.config._attn_implementation
    return AttnscopeError(
        f"{name} computes something else while it is recorded: its output differs by {apart:.1e} from what it is under "
        f"its own attention implementation, '{used}'",
        where="model",
        allowed=f"at most {limit:g} of its largest number, {scale:.1e}",
        todo="load the model with attn_implementation='eager'",
    )
