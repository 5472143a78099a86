"""Proof that a model is read exactly: every path a reading takes, beside the model's own eager attention.

A path is what a layer's numbers went through: the backend, what limited the view, and whether a few rows or all of them
were read. Both sides compute in float32 even for 16-bit models, because eager attention in 16 bits is itself off by
some hundredths. The limit is tied to eager's own rounding: how far its float32 numbers are from its float64 ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.backends import BACKENDS
from attnscope.attention.comparison import COARSE, UNKNOWN, Sides, most, refuse_if_apart
from attnscope.attention.eager import EagerModules
from attnscope.attention.eager_reference import eager_reference, exact_reference, weight_modules
from attnscope.attention.forward import Forward, measure_forward
from attnscope.attention.interface import EAGER, has_foreign_attention, settings_kept
from attnscope.attention.own_attention import changed_forward, largest, own_output, refuse_other_attention
from attnscope.attention.precision import can_widen, widened
from attnscope.attention.probe import Probe, asked, padded
from attnscope.attention.recorder import Wanted
from attnscope.attention.turns import lock_of
from attnscope.errors import AttnscopeError
from attnscope.measures.received import RECEIVED

SMALL_BLOCK = 16  # rows; a probe has four such blocks
INTERFACE, BY_LAYER = "attention interface", "eager, one layer at a time"
OTHER = 1e-3  # of the largest number: how far two ways to compute the same may be apart

Path = tuple[int, str, str]
"""(layer, backend, what limited the view)."""


@dataclass(frozen=True)
class Proof:
    """What one comparison showed."""

    way: str
    """`attention interface`, or `eager, one layer at a time`."""
    difference: float | None
    """The largest distance of attention received from eager's, over all layers, heads, groups and keys compared; None
    if nothing was compared.
    """
    rounding: float | None
    """Eager's own: the largest distance of its float32 numbers from its float64 ones; None if that can't be had."""
    limit: float
    dtype: str
    """What both sides were computed in."""
    reason: str | None
    """Why that is not float32 or float64, or why there is no float64 to compare with."""
    measures: dict[str, float]
    """By measure: the largest distance from its reference on eager's weights."""
    row_sum_error: float
    sink_share: float
    """The largest share of a row that no key receives."""
    causal: bool | None
    """Whether no query sees a later key; None if the rows compared can't show it."""
    tokens: int
    rows: int
    """How many single rows were compared, besides the groups."""
    heads: dict[int, int]
    paths: frozenset[Path]
    narrow: bool
    """Whether the model's own attention weights are read, which have 16 bits."""
    windows: frozenset[int]
    eager: EagerModules | None = field(default=None, repr=False)
    changed: AttnscopeError | None = field(default=None, repr=False)
    """What was wrong, where the forward that was read is not what the model computes as it is."""

    def as_data(self) -> dict[str, Any]:
        """For evidence: without modules and errors, layers as text."""
        skipped = ("eager", "changed", "narrow", "paths", "windows", "heads")
        facts = {key: value for key, value in vars(self).items() if key not in skipped}
        facts["heads"] = {str(layer): count for layer, count in self.heads.items()}
        facts["backends"] = {str(layer): backend for layer, backend, _ in sorted(self.paths)}
        facts["masks"] = {str(layer): kind for layer, _, kind in sorted(self.paths)}
        return facts


def prove(model: PreTrainedModel, name: str, probe: Probe) -> Proof:
    """Read the probe both ways and compare; refuse a model that isn't read exactly."""
    return _probed(_prove, model, name, probe)


def looked_at(model: PreTrainedModel, name: str, probe: Probe) -> Proof:
    """What a reading has to know of a model, from the probe alone: nothing is compared, so its paths are not proven."""
    return _probed(_look_at, model, name, probe)


def _probed(
    read: Callable[[PreTrainedModel, str, Probe], Proof], model: PreTrainedModel, name: str, probe: Probe
) -> Proof:
    try:
        with lock_of(model), settings_kept(model):
            return read(model, name, probe)
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


def _prove(model: PreTrainedModel, name: str, probe: Probe) -> Proof:
    inputs, wanted, groups = asked(model, probe)
    narrow = model.dtype in (torch.float16, torch.bfloat16)
    reason = can_widen(model, torch.float32) if narrow else None
    with ExitStack() as stack:
        if narrow and reason is None:
            stack.enter_context(widened(model, torch.float32))
        modules = weight_modules(model, inputs)
        reference = eager_reference(model, inputs, wanted, modules)
        by_interface = _by_interface(model, inputs, wanted, probe)
        way, eager = INTERFACE, None
        if by_interface is not None:
            measured = by_interface
        else:
            way, eager = BY_LAYER, _needed(model, name, modules, probe.layers)
            reference = eager_reference(model, inputs, wanted, None)  # not by the modules that are read themselves
            measured = measure_forward(model, inputs, wanted, eager=eager)
        small = replace(wanted, block=SMALL_BLOCK)
        blocks = measure_forward(model, inputs, small, eager=eager, as_is=probe.as_is)
        own = own_output(model, inputs) if probe.limit is None or probe.as_is else None
        exact, why = None, reason or ("an earlier proof's limit" if probe.limit is not None else None)
        if why is None:
            exact, why = exact_reference(model, inputs, wanted, modules if eager is None else None)
    sides = Sides(measured, blocks, reference, exact, why, way, eager, reason is not None)
    limit = COARSE if sides.coarse else OTHER
    _, real = padded(probe.prompts, left=probe.left)
    if has_foreign_attention(model):  # then that is what is wrong, if anything is
        refuse_other_attention(model, name, own, reference.hidden, real, limit=limit)
    proof = _compared(model, name, probe, sides, groups)
    _refuse_outputs(name, measured, reference.hidden, real, limit=limit)
    refuse_other_attention(model, name, own, reference.hidden, real, limit=limit)
    changed = changed_forward(model, name, own, measured.hidden, limit=limit) if probe.as_is else None
    return replace(proof, changed=changed)


def _look_at(model: PreTrainedModel, name: str, probe: Probe) -> Proof:
    inputs, wanted, groups = asked(model, probe)
    measured = _by_interface(model, inputs, wanted, probe)
    eager = None
    if measured is None:
        eager = _needed(model, name, weight_modules(model, inputs), probe.layers)
        measured = measure_forward(model, inputs, wanted, eager=eager)
    narrow = model.dtype in (torch.float16, torch.bfloat16)
    return Proof(
        **_seen(probe, measured, groups),
        way=INTERFACE if eager is None else BY_LAYER,
        difference=None,
        rounding=None,
        limit=COARSE if narrow else UNKNOWN,
        dtype=str(model.dtype).removeprefix("torch."),
        reason="nothing was compared",
        measures={},
        narrow=narrow and eager is not None,
        eager=eager,
    )


def _by_interface(model: PreTrainedModel, inputs: dict[str, Any], wanted: Wanted, probe: Probe) -> Forward | None:
    """What is read by the attention interface; None for a model that doesn't follow it."""
    try:
        measured = measure_forward(model, inputs, wanted, as_is=probe.as_is)
    except (AttributeError, TypeError, ValueError, KeyError, NotImplementedError):
        if model.config._attn_implementation != EAGER or probe.as_is:
            raise
        return None  # what is not eager does not run, as a mask that only other implementations go without is missing
    whole = all(measured.calls[layer] == 1 and layer in measured.layers for layer in probe.layers)
    return measured if whole else None


def _refuse_outputs(name: str, measured: Forward, eager: Tensor | None, real: Tensor, *, limit: float) -> None:
    """Refuse a package's backend whose output takes the model elsewhere, be it in the last layer alone."""
    foreign = sorted({each.backend for each in measured.layers.values()} - set(BACKENDS.built_in))
    if not foreign or eager is None or measured.hidden is None or eager.shape[:2] != real.shape:
        return
    rows = real.to(eager.device)
    apart, scale = largest((measured.hidden - eager)[rows]), largest(eager[rows])
    if not apart <= limit * scale:
        what = f"has an output with which {name} ends {apart:.1e} from where eager attention ends"
        raise BACKENDS.mistake(foreign[0], "attend: output", what, f"at most {limit * scale:.1e}")


def _compared(model: PreTrainedModel, name: str, probe: Probe, sides: Sides, groups: Sequence[str]) -> Proof:
    distances = refuse_if_apart(model, name, probe, sides)
    narrow = model.dtype in (torch.float16, torch.bfloat16)
    return Proof(
        **_seen(probe, sides.measured, groups),
        way=sides.way,
        difference=distances[RECEIVED.name].distance,
        rounding=distances[RECEIVED.name].rounding,
        limit=distances[RECEIVED.name].limit,
        dtype="float32" if narrow and not sides.coarse else str(model.dtype).removeprefix("torch."),
        reason=sides.reason,
        measures={measure: each.distance for measure, each in distances.items()},
        narrow=narrow and (sides.coarse or sides.eager is not None),
        eager=sides.eager,
    )


def _seen(probe: Probe, measured: Forward, groups: Sequence[str]) -> dict[str, Any]:
    """The fields of a proof that what was measured shows by itself."""
    layers = [measured.layers[layer] for layer in probe.layers]
    received = [each.values[RECEIVED.name] for each in layers]
    sums = [each.sum(-1).float() for each in received]
    sinks = any("sinks" in each.kind for each in layers)
    return {
        "row_sum_error": most([float((each - 1).relu().max() if sinks else (each - 1).abs().max()) for each in sums]),
        "sink_share": most([float((1 - each).max()) for each in sums]) if sinks else 0.0,
        "causal": _causal(received, probe, groups),
        "tokens": probe.tokens,
        "rows": sum(group.isdigit() for group in groups),
        "heads": {layer: each.shape[1] for layer, each in zip(probe.layers, received, strict=True)},
        "paths": paths_of(measured),
        "windows": frozenset(each.window for each in layers if each.window is not None),
    }


def _causal(received: Sequence[Tensor], probe: Probe, groups: Sequence[str]) -> bool | None:
    """Whether the first query of a single prompt sees no later key; None if it was not read."""
    if "0" not in groups or len(probe.prompts) > 1 or probe.tokens == 1:
        return None
    first = groups.index("0")
    return all(float(each[:, :, first, 1:].abs().sum()) == 0 for each in received)


def paths_of(forward: Forward) -> frozenset[Path]:
    """What each layer's numbers went through."""
    return frozenset((layer, each.backend, each.kind) for layer, each in forward.layers.items())


def refuse_row_sums(sums: NDArray[Any], proof: Proof, name: str, *, narrow: bool = False) -> None:
    """Attention that added up to one on the probe and does not on a prompt was not read exactly.

    sums: what the keys receive together, of each group. narrow: whether the weights that are read may have 16 bits.
    """
    limit = 0.02 if proof.narrow or narrow else OTHER
    if proof.row_sum_error > limit or proof.sink_share > 0:
        return
    apart = float(np.abs(sums - 1).max(initial=0.0))
    if not apart <= limit:
        raise AttnscopeError(
            f"the attention of {name} does not add up to 1 on this prompt",
            where=f"off by {apart:.1e}",
            allowed=f"at most {limit:g}",
            todo="use shorter prompts, or another backend",
        )


def _needed(model: PreTrainedModel, name: str, modules: EagerModules, layers: Sequence[int]) -> EagerModules:
    if set(layers) <= set(modules):
        return modules
    raise AttnscopeError(
        f"{name} can't be read exactly: {type(model).__name__} neither follows transformers' attention interface nor "
        "returns its attention weights",
        where="model",
        allowed="models with softmax attention that transformers can show",
        todo="see 'attnscope models' for the architectures that were verified",
    )
