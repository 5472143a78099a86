"""Proof that a model is read exactly: the meter's numbers beside those of transformers' own eager attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.errors import AttnscopeError
from attnscope.meter.eager import EagerModules, find_modules
from attnscope.meter.forward import Measurement, input_device, measure_forward
from attnscope.meter.groups import row_weights
from attnscope.meter.interface import implementation

TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-3}
COARSE = 0.1  # eager attention in 16 bits is itself off by some hundredths


@dataclass(frozen=True)
class Parity:
    """What a short prompt showed. `difference` and `logits` are None where eager attention gives nothing to compare."""

    way: str
    difference: float | None  # largest, of received, between the meter and eager attention
    row_sum_error: float  # largest distance of a row's sum from one, a sink's share added
    sink_share: float  # largest share of a row that no key receives
    causal: bool
    calls: dict[int, int]
    masks: dict[int, str]
    tokens: int
    eager: EagerModules | None = None


def prove(model: PreTrainedModel, name: str, layers: Sequence[int], probe: Sequence[int]) -> Parity:
    """Read `layers` of the probe's ids both ways and compare; refuse a model that isn't read exactly."""
    ids = torch.as_tensor([list(probe)], device=input_device(model))
    inputs = {"input_ids": ids}
    real = torch.ones(ids.shape, dtype=torch.bool)
    weights = row_weights(["last", "all", "first"], real, [{"first": [0]}])
    reference = _eager(model, inputs)
    measured = measure_forward(model, inputs, weights, layers)
    way, eager = "attention interface", None
    if any(measured.calls[layer] != 1 for layer in layers):
        way, eager = "eager, one layer at a time", _modules(model, name, inputs, layers)
        measured = measure_forward(model, inputs, weights, layers, eager=eager)
    difference = _difference(measured, reference, weights, layers)
    _refuse_if_wrong(model, name, difference)
    sums = torch.stack([measured.received[layer].sum(-1) for layer in layers]).float()
    sinks = any("sinks" in kind for kind in measured.masks.values())
    first = torch.stack([measured.received[layer][:, :, 2, 1:].abs().sum() for layer in layers])
    return Parity(
        way=way,
        difference=difference,
        row_sum_error=float((sums.max() - 1).clamp(min=0) if sinks else (sums - 1).abs().max()),
        sink_share=float((1 - sums).max().clamp(min=0)) if sinks else 0.0,
        causal=len(probe) > 1 and bool((first == 0).all()),
        calls={layer: measured.calls[layer] for layer in layers},
        masks=measured.masks,
        tokens=len(probe),
        eager=eager,
    )


def _eager(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Sequence[Tensor] | None:
    """Every attention layer's weights (1, H, S, S) in order, or None where the model doesn't give them."""
    with implementation(model, "eager"):
        try:
            outputs = model.base_model(**inputs, output_attentions=True)
        except (ValueError, NotImplementedError):
            return None
    weights = getattr(outputs, "attentions", None)
    if not weights or any(each is None for each in weights):
        return None
    return tuple(weights)


def _modules(model: PreTrainedModel, name: str, inputs: dict[str, Tensor], layers: Sequence[int]) -> EagerModules:
    found = find_modules(model, inputs)
    if set(layers) <= set(found):
        return found
    raise AttnscopeError(
        f"{name} can't be read exactly: {type(model).__name__} neither follows transformers' attention interface nor "
        "returns its attention weights",
        where="model",
        allowed="models with softmax attention that transformers can show",
        todo="see 'attnscope models' for the architectures that were verified",
    )


def _difference(
    measured: Measurement, reference: Sequence[Tensor] | None, weights: Tensor, layers: Sequence[int]
) -> float | None:
    if reference is None:
        return None
    # a hybrid model returns weights for its attention layers alone
    by_layer = (
        dict(enumerate(reference)) if len(reference) > max(layers) else dict(zip(layers, reference, strict=False))
    )
    worst = 0.0
    for layer in layers:
        eager = by_layer[layer]
        shares = weights.to(eager.device, torch.promote_types(eager.dtype, torch.float32))
        expected = shares[:, None] @ eager.to(shares.dtype)
        worst = max(worst, float((measured.received[layer] - expected).abs().max()))
    return worst


def _refuse_if_wrong(model: PreTrainedModel, name: str, difference: float | None) -> None:
    limit = TOLERANCE.get(model.dtype, COARSE)
    if difference is not None and not difference <= limit:
        raise AttnscopeError(
            f"{name} can't be read exactly: the meter and {type(model).__name__}'s eager attention differ "
            f"by {difference:.1e}",
            where="model",
            allowed=f"at most {limit:.0e} in {model.dtype}",
            todo="try --dtype float32, or another model",
        )
