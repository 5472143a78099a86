"""One forward of a model -> what was measured, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.eager import EagerModules, opened_eagerly
from attnscope.attention.interface import opened, quiet
from attnscope.attention.recorder import EnoughError, LayerResult, Recorder, Wanted


@dataclass(frozen=True)
class Forward:
    """What one forward showed."""

    layers: dict[int, LayerResult]
    calls: Counter[int]
    """How many attention calls each layer made."""
    logits: Tensor | None
    """(B, Sq, vocabulary), if they were asked for."""


def measure_forward(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    wanted: Wanted,
    *,
    eager: EagerModules | None = None,
    logits: bool = False,
) -> Forward:
    """Run `model(**inputs)` and read it.

    eager: the modules to read from, for a model that doesn't follow transformers' attention interface. logits: also run
    the model to its end and its head; `wanted.stop` must then be off.
    """
    recorder = Recorder(wanted)
    runner = model if logits else model.base_model
    door = opened(model, recorder) if eager is None else opened_eagerly(model, recorder, eager)
    output = None
    with quiet(model), door:
        try:
            outputs = runner(**without_cache(model, inputs))
            output = outputs.logits if logits else None
        except EnoughError:
            pass
    return Forward(recorder.results, recorder.calls, output)


def may_stop(model: PreTrainedModel) -> bool:
    """Whether a forward can be ended early: models spread over devices clean up after each layer."""
    return not getattr(model, "hf_device_map", None)


def without_cache(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a forward that keeps no cache, unless they say otherwise."""
    takes_cache = hasattr(model.config.get_text_config(), "use_cache")
    return {"use_cache": False, **inputs} if takes_cache else dict(inputs)


def input_device(model: PreTrainedModel) -> torch.device:
    """Where the model wants its token ids."""
    return next(model.get_input_embeddings().parameters()).device
