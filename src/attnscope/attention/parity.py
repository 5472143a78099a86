"""Proof that a model is read exactly: the meter's numbers beside those of transformers' own eager attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.eager import EagerModules, find_modules
from attnscope.attention.forward import Measurement, input_device, measure_forward
from attnscope.attention.groups import row_weights
from attnscope.attention.interface import hooks_kept, implementation
from attnscope.errors import AttnscopeError

FINE = 2e-3  # rounding, through the layers of a deep model, stays far below; a wrong mask or scale is far above
ROWS = 8  # single rows that are compared
COARSE = 0.1  # eager attention in 16 bits is itself off by some hundredths


@dataclass(frozen=True)
class Parity:
    """What a short prompt showed."""

    way: str
    difference: float  # largest, of received, between the meter and eager attention
    row_sum_error: float  # largest distance of a row's sum from one, a sink's share added
    sink_share: float  # largest share of a row that no key receives
    causal: bool
    calls: dict[int, int]
    masks: dict[int, str]
    heads: dict[int, int]
    tokens: int
    rows: int
    """How many single rows were compared, besides the mean of all."""
    eager: EagerModules | None = None


def prove(model: PreTrainedModel, name: str, layers: Sequence[int], probe: Sequence[int]) -> Parity:
    """Read `layers` of the probe's ids both ways and compare; refuse a model that isn't read exactly."""
    try:
        return _prove(model, name, layers, probe)
    except AttnscopeError:
        raise
    except Exception as error:
        memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
        raise AttnscopeError(
            f"{name} can't be read: {type(model).__name__} fails on a short prompt, {type(error).__name__}: {error}",
            where="model",
            allowed="models that run a text of their own tokens and show their attention weights",
            todo="free some memory, or use a smaller dtype" if memory else "choose another model",
        ) from error


def _prove(model: PreTrainedModel, name: str, layers: Sequence[int], probe: Sequence[int]) -> Parity:
    ids = torch.as_tensor([list(probe)], device=input_device(model))
    inputs = {"input_ids": ids}
    rows = sorted({round(row) for row in torch.linspace(0, len(probe) - 1, ROWS).tolist()})
    groups = {str(row): [row] for row in rows}
    weights = row_weights(["all", *groups], torch.ones(ids.shape, dtype=torch.bool), [groups])
    reference = _eager(model, inputs)
    measured = measure_forward(model, inputs, weights, layers)
    way, eager = "attention interface", None
    if any(measured.calls[layer] != 1 for layer in layers):
        way, eager = "eager, one layer at a time", _modules(model, name, inputs, layers)
        measured = measure_forward(model, inputs, weights, layers, eager=eager)
    difference = _difference(measured, reference, weights, layers)
    _refuse_if_wrong(model, name, difference)
    sums = [measured.received[layer].sum(-1).float() for layer in layers]
    sinks = any("sinks" in kind for kind in measured.masks.values())
    ahead = [measured.received[layer][:, :, 1, 1:].abs().sum() for layer in layers]  # what the first row sees
    return Parity(
        way=way,
        difference=difference,
        row_sum_error=max(float((each - 1).relu().max() if sinks else (each - 1).abs().max()) for each in sums),
        sink_share=max(float((1 - each).max()) for each in sums) if sinks else 0.0,
        causal=len(probe) > 1 and all(float(each) == 0 for each in ahead),
        calls={layer: measured.calls[layer] for layer in layers},
        masks=measured.masks,
        heads={layer: measured.received[layer].shape[1] for layer in layers},
        tokens=len(probe),
        rows=len(rows),
        eager=eager,
    )


def _eager(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Sequence[Tensor]:
    """Every attention layer's weights (1, H, S, S) in order."""
    with hooks_kept(model), implementation(model, "eager"):
        outputs = model.base_model(**inputs, output_attentions=True)
    weights = getattr(outputs, "attentions", None)
    if not weights or any(each is None for each in weights):
        raise NotImplementedError("it gives no attention weights to compare with")
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


def _difference(measured: Measurement, reference: Sequence[Tensor], weights: Tensor, layers: Sequence[int]) -> float:
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


def _refuse_if_wrong(model: PreTrainedModel, name: str, difference: float) -> None:
    limit = FINE if model.dtype in (torch.float32, torch.float64) else COARSE
    if not difference <= limit:
        raise AttnscopeError(
            f"{name} can't be read exactly: the meter and {type(model).__name__}'s eager attention differ "
            f"by {difference:.1e}",
            where="model",
            allowed=f"at most {limit:.0e} in {model.dtype}",
            todo="try --dtype float32, or another model",
        )
