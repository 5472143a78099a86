"""A forward read in one line, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.eager import EagerModules, find_modules
from attnscope.attention.forward import Forward, measure_forward
from attnscope.attention.interface import quiet
from attnscope.attention.recorder import Wanted
from attnscope.measures import MEASURES


def read(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    weights: Tensor,
    layers: Sequence[int],
    *,
    measures: Sequence[str] = ("received",),
    logits: bool = False,
    lengths: list[int] | None = None,
    block: int | None = None,
    eager: EagerModules | None = None,
    stop: bool = True,
) -> Forward:
    """What `measure_forward` gives; token ids and pads are taken from the inputs."""
    mask = inputs.get("attention_mask")
    wanted = Wanted(
        weights,
        frozenset(layers),
        tuple(MEASURES.members[name] for name in measures),
        ids=inputs["input_ids"].tolist(),
        stop=stop and not logits,
        real=None if mask is None else mask.bool(),
        lengths=lengths,
        block=block,
    )
    return measure_forward(model, inputs, wanted, eager=eager, logits=logits)


def received(forward: Forward) -> dict[int, Tensor]:
    return {layer: result.values["received"] for layer, result in forward.layers.items()}


def modules(model: PreTrainedModel, inputs: dict[str, Any]) -> EagerModules:
    with quiet(model):
        return find_modules(model, inputs)


def real_rows(inputs: Mapping[str, Any]) -> Tensor:
    """(batch, queries) False at pads, from an `attention_mask` (batch, keys) where there is one."""
    ids: Tensor = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    if mask is None:
        return torch.ones(ids.shape, dtype=torch.bool, device=ids.device)
    return mask[:, -ids.shape[1] :].bool()
