"""What the meter is compared with: transformers' eager attention, all of it, reduced in the plainest way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.interface import implementation, quiet


def eager(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Any:
    """The model's own outputs with every layer's attention matrix."""
    with quiet(model), implementation(model, "eager"):
        return model(**inputs, output_attentions=True)


def received(attention: Tensor, weights: Tensor) -> Tensor:
    """(B, H, m, keys) from attention (B, H, Sq, Sk) and weights (B, m, Sq)."""
    return torch.einsum("bmq,bhqk->bhmk", weights.to(attention.dtype), attention)


def row_entropy(attention: Tensor) -> Tensor:
    """(B, H, Sq) of each row's attention among keys."""
    share = attention / attention.sum(-1, keepdim=True).clamp(min=1e-30)
    return -torch.xlogy(share, share).sum(-1)
