"""What the model's own eager attention gives: the other side of every proof."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.call import AnyCall, MatrixCall
from attnscope.attention.eager import EagerModules, find_modules, opened_eagerly
from attnscope.attention.forward import hidden_of, without_extras
from attnscope.attention.interface import hooks_kept, implementation, quiet
from attnscope.attention.precision import can_widen, widened
from attnscope.attention.recorder import Recorder, Wanted
from attnscope.attention.reduce import unsettled_rows
from attnscope.measures.received import RECEIVED


class EagerRecorder(Recorder):
    """Reads eager's own weights by the declared references; keeps how far near-ties could move a measure."""

    def __init__(self, wanted: Wanted, rounding: float = 1e-5) -> None:
        super().__init__(wanted)
        self.rounding = rounding
        self.hidden: Tensor | None = None
        """(B, tokens, width): what the model's last layer gives."""
        self.slack: dict[tuple[int, str], Tensor] = {}

    def attention(self, layer: int, call: AnyCall, own: Any = None) -> Tensor | None:
        if layer in self.layers and isinstance(call, MatrixCall):
            share = self.wanted.weights.to(call.device)
            for measure in self.wanted.measures:
                if measure.unsettled is not None:
                    flags = torch.stack([unsettled_rows(measure, each.float(), self.rounding) for each in call.weights])
                    self.slack[layer, measure.name] = (flags[:, :, None].to(share) * share[:, None]).sum(-1)
        return super().attention(layer, call, own)


def eager_reference(
    model: PreTrainedModel, inputs: Mapping[str, Any], wanted: Wanted, modules: EagerModules | None
) -> EagerRecorder:
    """What eager attention gives: one layer's weights at a time where its modules are known, else all at once."""
    recorder = EagerRecorder(Wanted(**{**vars(wanted), "stop": False}))
    if modules is not None and wanted.layers <= set(modules):
        with quiet(model), opened_eagerly(model, recorder, modules):
            recorder.hidden = hidden_of(model.base_model(**without_extras(model, inputs)))
        return recorder
    with quiet(model), hooks_kept(model), implementation(model, "eager", threading.get_ident()):
        outputs = model.base_model(**without_extras(model, {**inputs, "output_attentions": True}))
        recorder.hidden = hidden_of(outputs)
        weights = getattr(outputs, "attentions", None)
        if not weights or any(each is None for each in weights):
            raise NotImplementedError("it gives no attention weights to compare with")
        layers = sorted(wanted.layers)
        by_layer = dict(enumerate(weights)) if len(weights) > layers[-1] else dict(zip(layers, weights, strict=False))
        for layer in layers:  # a hybrid model returns weights for its attention layers alone
            matrix = by_layer[layer]
            seen = torch.ones(1, 1, *matrix.shape[2:], dtype=torch.bool, device=matrix.device)
            recorder.attention(layer, MatrixCall(matrix, seen))
    return recorder


def reference_row(model: PreTrainedModel, ids: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
    """By layer, (1, heads, keys): what eager attention over the whole prompt gives the last query."""
    weights = torch.zeros(1, 1, ids.shape[1], device=ids.device)
    weights[..., -1] = 1
    inputs = {"input_ids": ids}
    recorder = eager_reference(model, inputs, Wanted(weights, frozenset(layers)), weight_modules(model, inputs))
    return {layer: each.values[RECEIVED.name][:, :, 0] for layer, each in recorder.results.items()}


def exact_reference(
    model: PreTrainedModel, inputs: Mapping[str, Any], wanted: Wanted, modules: EagerModules | None
) -> tuple[EagerRecorder | None, str | None]:
    """Eager in float64, or why it can't be had."""
    if model.dtype == torch.float64:
        return None, "the model computes in float64"
    reason = can_widen(model, torch.float64)
    if reason is not None:
        return None, reason
    try:
        with widened(model, torch.float64):
            exact = eager_reference(model, inputs, wanted, modules)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:  # not every model computes in float64
        return None, f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
    if not all(bool(each.isfinite().all()) for result in exact.results.values() for each in result.values.values()):
        return None, "eager attention in float64 gives numbers that are not finite"  # where pads see nothing
    return exact, None


def weight_modules(model: PreTrainedModel, inputs: Mapping[str, Any]) -> EagerModules:
    """The modules that return each layer's attention weights in eager mode; found on the first few tokens."""
    short = {"input_ids": inputs["input_ids"][:1, -8:]}
    with quiet(model):
        return find_modules(model, short)
