"""What edits are compared with: the model's own eager attention, with its mask, weights and outputs changed by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.interface import implementation, quiet


@dataclass
class ByHand:
    """Changes by layer. masks, zeros: (heads or 1, queries, keys), True where a key is hidden or a weight set to 0."""

    masks: dict[int, Tensor] = field(default_factory=dict)
    zeros: dict[int, Tensor] = field(default_factory=dict)
    outputs: dict[tuple[int, int], Callable[[Tensor], Tensor]] = field(default_factory=dict)
    """By layer and head: what its output (B, queries, width) becomes."""


@contextmanager
def changed(model: PreTrainedModel, hand: ByHand) -> Iterator[None]:
    """Inside, eager attention of the model's own file makes the changes."""
    names = {type(each).__module__ for each in model.modules() if hasattr(each, "layer_idx")}
    places = [sys.modules[name] for name in names if hasattr(sys.modules[name], "eager_attention_forward")]
    assert places
    before = [place.eager_attention_forward for place in places]
    for place, own in zip(places, before, strict=True):
        place.eager_attention_forward = _by_hand(own, hand)  # type: ignore[attr-defined]
    try:
        with quiet(model), implementation(model, "eager"):
            yield
    finally:
        for place, own in zip(places, before, strict=True):
            place.eager_attention_forward = own  # type: ignore[attr-defined]


def _by_hand(own: Callable[..., Any], hand: ByHand) -> Callable[..., Any]:
    def forward(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any) -> Any:
        layer = module.layer_idx
        if layer in hand.masks:
            least = torch.finfo(query.dtype).min
            attention_mask = attention_mask.expand(-1, query.shape[1], -1, -1).masked_fill(hand.masks[layer], least)
        output, weights = own(module, query, key, value, attention_mask, **more)
        if layer in hand.zeros:
            values = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
            weights = weights.masked_fill(hand.zeros[layer], 0)
            output = (weights @ values).transpose(1, 2).contiguous()
        for (place, head), change in hand.outputs.items():
            if place == layer:
                output = output.clone()
                output[:, :, head] = change(output[:, :, head])
        return output, weights

    return forward
