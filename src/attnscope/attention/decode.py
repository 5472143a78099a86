"""Proof of decoding: a step with the cache beside eager attention over the whole prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from attnscope.attention.device import input_device
from attnscope.attention.eager_reference import reference_row
from attnscope.attention.forward import door, without_extras
from attnscope.attention.interface import quiet
from attnscope.attention.precision import can_widen, widened
from attnscope.attention.proof import Proof
from attnscope.attention.recorder import Recorder, Wanted
from attnscope.attention.turns import lock_of
from attnscope.errors import AttnscopeError
from attnscope.measures.received import RECEIVED


def prove_decode(
    model: PreTrainedModel, name: str, ids: Sequence[int], layers: Sequence[int], proof: Proof
) -> Proof | None:
    """Read the last token of a probe with the others in the cache; None for a model that takes no cache."""
    with lock_of(model):
        return _prove_decode(model, name, ids, layers, proof)


def _prove_decode(
    model: PreTrainedModel, name: str, ids: Sequence[int], layers: Sequence[int], proof: Proof
) -> Proof | None:
    if model.dtype in (torch.float16, torch.bfloat16) and can_widen(model, torch.float32) is None:
        with widened(model, torch.float32):
            return _prove_decode(model, name, ids, layers, proof)
    tokens = torch.as_tensor([list(ids)], device=input_device(model))
    expected = reference_row(model, tokens, layers)
    recorder = Recorder(Wanted(torch.ones(1, 1, 1, device=tokens.device), frozenset(layers), stop=False))
    with quiet(model):
        try:
            empty = DynamicCache(config=model.config)
            first = _stepped(model, tokens[:, :-1], empty)
            cache = getattr(first, "past_key_values", None)
        except (TypeError, ValueError, AttributeError, NotImplementedError):
            return None
        if cache is None:
            return None
        with door(model, recorder, proof.eager, as_is=True):
            _stepped(model, tokens[:, -1:], cache)
    narrow = model.dtype in (torch.float16, torch.bfloat16)
    limit = 5e-2 if narrow else max(proof.limit, 4 * (proof.rounding or 0))
    worst = 0.0
    for layer in layers:
        if recorder.calls[layer] != 1 or layer not in recorder.results:
            return None
        received = recorder.results[layer].values[RECEIVED.name][:, :, 0].double()  # (1, heads, keys)
        row = expected[layer].double()
        gone = row.shape[-1] - received.shape[-1]  # a cache may have let go of what no query sees
        row = row[..., gone:]
        distance = float((received - row).abs().max())
        if not distance <= limit:
            raise AttnscopeError(
                f"{name} can't be recorded while it decodes: it differs from eager attention by {distance:.1e}",
                where=f"layer {layer}",
                allowed=f"at most {limit:.1e}",
                todo="measure whole prompts with a Lens instead",
            )
        worst = max(worst, distance)
    paths = frozenset((layer, each.backend, each.kind) for layer, each in recorder.results.items())
    return replace(proof, difference=worst, paths=paths, rows=1, way=f"{proof.way}, with the cache")


def _stepped(model: PreTrainedModel, ids: Tensor, cache: Any) -> Any:
    inputs = {"input_ids": ids, "use_cache": True, "past_key_values": cache}
    return model.base_model(**without_extras(model, inputs))
