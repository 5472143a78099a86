"""The model as it runs: what it computes with its own attention implementation, beside eager attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.forward import without_cache
from attnscope.attention.interface import quiet
from attnscope.errors import AttnscopeError


def hidden_of(outputs: Any) -> Tensor | None:
    """(B, tokens, width): what the last layer gives, if the outputs have it."""
    first = outputs[0] if isinstance(outputs, tuple) else getattr(outputs, "last_hidden_state", None)
    return first if isinstance(first, Tensor) else None


def own_output(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Tensor | None:
    """What the model gives as it is; None if its own attention can't run here: on this device, in this format."""
    try:
        with quiet(model):
            return hidden_of(model.base_model(**without_cache(model, inputs)))
    except Exception:
        return None


def refuse_other_attention(
    model: PreTrainedModel, name: str, own: Tensor | None, eager: Tensor | None, *, limit: float
) -> None:
    """Refuse a model whose own attention implementation computes something else than its eager one.

    Everything else is compared with eager attention; what counts is the model as it runs. limit: of eager's largest
    number.
    """
    if own is None or eager is None or own.shape != eager.shape:
        return
    apart, scale = (float(each.float().abs().max()) for each in (own - eager, eager))
    if apart > limit * scale:
        used = model.config._attn_implementation
        raise AttnscopeError(
            f"{name} computes something else with its own attention implementation, '{used}', than with eager "
            f"attention: its output differs by {apart:.1e}",
            where="model",
            allowed=f"at most {limit:g} of its largest number, {scale:.1e}",
            todo="load the model with attn_implementation='eager'",
        )
