"""One forward of a model -> what was measured, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.device import is_spread
from attnscope.attention.eager import EagerModules, opened_eagerly
from attnscope.attention.interface import opened, quiet
from attnscope.attention.recorder import EnoughError, LayerResult, Recorder, Wanted

if TYPE_CHECKING:
    from attnscope.attention.recording import Recording


@dataclass(frozen=True)
class Forward:
    """What one forward showed."""

    layers: dict[int, LayerResult]
    calls: Counter[int]
    """How many attention calls each layer made."""
    logits: Tensor | None = None
    """(B, Sq, vocabulary), if they were asked for."""
    hidden: Tensor | None = None
    """(B, Sq, width): what the last layer gives, if the forward came that far."""


def measure_forward(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    wanted: Wanted,
    *,
    eager: EagerModules | None = None,
    logits: bool = False,
    as_is: bool = False,
) -> Forward:
    """Run `model(**inputs)` and read it.

    eager: the modules to read from, for a model that doesn't follow transformers' attention interface. logits: also run
    the model to its end and its head; `wanted.stop` must then be off. as_is: under the model's own implementation.
    """
    recorder = Recorder(wanted)
    runner = model if logits else model.base_model
    outputs = None
    with quiet(model), door(model, recorder, eager, as_is=as_is), suppress(EnoughError):
        outputs = runner(**without_extras(model, inputs))
    if logits:
        return Forward(recorder.results, recorder.calls, logits=getattr(outputs, "logits", None))
    return Forward(recorder.results, recorder.calls, hidden=hidden_of(outputs))


def door(
    model: PreTrainedModel, listener: Recorder | Recording, eager: EagerModules | None, *, as_is: bool = False
) -> AbstractContextManager[None]:
    """Into a model, by its attention interface or by the modules that make its weights."""
    return opened(model, listener, as_is=as_is) if eager is None else opened_eagerly(model, listener, eager)


def hidden_of(outputs: Any) -> Tensor | None:
    """(B, tokens, width): what the last layer gives, if the outputs have it."""
    first = outputs[0] if isinstance(outputs, tuple) else getattr(outputs, "last_hidden_state", None)
    return first if isinstance(first, Tensor) else None


def may_stop(model: PreTrainedModel) -> bool:
    """Whether a forward can be ended early: models spread over devices clean up after each layer."""
    return not is_spread(model)


def without_extras(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a forward that keeps no cache and returns no inner states, by name, unless they say otherwise.

    A model whose config asks for inner states would make them, and transformers would leave hooks on it for that.
    """
    configs = (model.config, model.config.get_text_config())
    extras = {"use_cache": False} if hasattr(configs[1], "use_cache") else {}
    states = ("output_attentions", "output_hidden_states")
    asked = [name for name in states if any(getattr(config, name, False) for config in configs)]
    if not getattr(model.config, "return_dict", True):
        extras["return_dict"] = True
    return {**extras, **dict.fromkeys(asked, False), **inputs}
