"""One forward of a model -> what every key received, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.eager import EagerModules, recorded_eagerly
from attnscope.attention.interface import opened
from attnscope.attention.patterns import Pairs
from attnscope.attention.recorder import EnoughError, Recorder

Way = Literal["interface", "eager, one layer at a time"]


@dataclass(frozen=True)
class Measurement:
    """Per layer, in the order asked for. `m` is the number of query groups."""

    received: dict[int, Tensor]  # each (batch, heads, m, keys)
    entropy: dict[int, Tensor]  # each (batch, heads, m); empty unless asked for
    calls: Counter[int]
    masks: dict[int, str]
    uniform: dict[int, Tensor]  # each (batch, heads or 1, m, keys): what a gaze at all visible keys alike would give
    seen: dict[int, Tensor]  # the same shape: the share of each group's queries that see the key
    logits: Tensor | None
    patterns: dict[int, Tensor]  # each (batch, heads, patterns, m, 3), see Recorder; empty unless asked for


def measure_forward(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    weights: Tensor,
    layers: Sequence[int],
    *,
    entropy: bool = False,
    logits: bool = False,
    lengths: list[int] | None = None,
    block: int | None = None,
    eager: EagerModules | None = None,
    pairs: list[Pairs] | None = None,
) -> Measurement:
    """Run `model(**inputs)` and read the layers. weights (batch, groups, queries), see groups.row_weights.

    logits: also run the model to its end and its head. lengths: the batch is padded on the right, the model is causal
    and no mask is given. block: rows to a block, for tests. eager: the modules to read from, for a model that doesn't
    follow transformers' attention interface. pairs: of each prompt, to sum patterns over.
    """
    stop = not logits and not getattr(model, "hf_device_map", None)  # dispatched models clean up after each layer
    recorder = Recorder(
        weights,
        set(layers),
        entropy=entropy,
        stop=stop,
        lengths=lengths,
        block=block,
        real=_real_keys(inputs),
        pairs=pairs,
    )
    runner = model if logits else model.base_model
    way = opened(model, recorder) if eager is None else recorded_eagerly(model, recorder, eager)
    found = None
    with way:
        try:
            outputs = runner(**{"use_cache": False, **inputs} if _takes_cache(model) else dict(inputs))
            found = outputs.logits if logits else None
        except EnoughError:
            pass
    return Measurement(
        received={layer: recorder.received[layer] for layer in layers if layer in recorder.received},
        entropy={layer: recorder.entropies[layer] for layer in layers if layer in recorder.entropies},
        calls=recorder.calls,
        masks=recorder.masks,
        uniform=recorder.uniform,
        seen=recorder.seen,
        logits=found,
        patterns=recorder.patterns,
    )


def _takes_cache(model: PreTrainedModel) -> bool:
    return hasattr(model.config.get_text_config(), "use_cache")


def _real_keys(inputs: Mapping[str, Any]) -> Tensor | None:
    mask = inputs.get("attention_mask")
    return mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None


def input_device(model: PreTrainedModel) -> torch.device:
    """Where the model wants its token ids."""
    return next(model.get_input_embeddings().parameters()).device


def real_rows(inputs: Mapping[str, Any]) -> Tensor:
    """(batch, queries) False at pads, from an `attention_mask` (batch, keys) where there is one."""
    ids: Tensor = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    if mask is None:
        return torch.ones(ids.shape, dtype=torch.bool, device=ids.device)
    return mask[:, -ids.shape[1] :].bool()  # type: ignore[no-any-return]
