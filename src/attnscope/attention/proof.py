"""Proof that a model is read exactly: every path a reading takes, beside the model's own eager attention.

A path is what a layer's numbers went through: the backend, what limited the view, and whether a few rows or all of them
were read. Both sides compute in float32 even for 16-bit models, because eager attention in 16 bits is itself off by
some hundredths. The limit is tied to eager's own rounding: how far its float32 numbers are from its float64 ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.ask import FEW
from attnscope.attention.blame import not_finite
from attnscope.attention.call import AnyCall, MatrixCall
from attnscope.attention.eager import EagerModules, find_modules, opened_eagerly
from attnscope.attention.forward import Forward, input_device, may_stop, measure_forward, without_cache
from attnscope.attention.groups import row_weights
from attnscope.attention.interface import hooks_kept, implementation, quiet, settings_kept
from attnscope.attention.own_attention import hidden_of, own_output, refuse_other_attention
from attnscope.attention.precision import can_widen, widened
from attnscope.attention.recorder import Recorder, Wanted
from attnscope.attention.reduce import unsettled_rows
from attnscope.errors import AttnscopeError
from attnscope.measures import MEASURES, Measure
from attnscope.measures.received import RECEIVED

ROWS = 8  # single rows that are compared
FLOOR = 2e-6  # of the largest value: float32 sums in another order
TIMES = 8.0  # eager's own rounding that a reading may be off by
UNKNOWN = 1e-4  # of the largest value, where float64 can't say what eager's rounding is
SMALL_BLOCK = 16  # rows; a probe has four such blocks
OTHER = 1e-3  # of the largest number: how far two ways to compute the same may be apart
COARSE = 0.1  # where not even float32 can be had: eager attention in 16 bits is itself off by some hundredths

Path = tuple[int, str, str]
"""(layer, backend, what limited the view)."""


@dataclass(frozen=True)
class Proof:
    """What one comparison showed."""

    way: str
    """`attention interface`, or `eager, one layer at a time`."""
    difference: float
    """The largest distance of attention received from eager's, over all layers, heads, groups and keys compared."""
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
    windows: frozenset[int]
    eager: EagerModules | None = field(default=None, repr=False)

    def as_data(self) -> dict[str, Any]:
        """For evidence: without modules and paths, layers as text."""
        skipped = ("eager", "paths", "windows", "heads")
        facts = {key: value for key, value in vars(self).items() if key not in skipped}
        facts["heads"] = {str(layer): count for layer, count in self.heads.items()}
        facts["backends"] = {str(layer): backend for layer, backend, _ in sorted(self.paths)}
        facts["masks"] = {str(layer): kind for layer, _, kind in sorted(self.paths)}
        return facts


@dataclass(frozen=True)
class Probe:
    """What a proof reads: token ids of one prompt or several, the layers, whether few rows are read, which measures."""

    prompts: Sequence[Sequence[int]]
    layers: Sequence[int]
    few: bool = False
    measures: tuple[Measure, ...] = (RECEIVED,)
    left: bool = False
    """Whether shorter prompts are padded on the left."""
    masked: bool = False
    """Whether the model is given an attention mask; otherwise prompts of several lengths rely on its being causal."""
    observe: bool = False
    """Whether the model keeps its own attention output, as while gradients flow."""
    limit: float | None = None
    """What to go by instead of eager's rounding, which float64 then need not show: an earlier proof's limit."""

    @property
    def tokens(self) -> int:
        return max(map(len, self.prompts))


def prove(model: PreTrainedModel, name: str, probe: Probe) -> Proof:
    """Read the probe both ways and compare; refuse a model that isn't read exactly."""
    try:
        with settings_kept(model):
            return _prove(model, name, probe)
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
    inputs, wanted, groups = _asked(model, probe)
    narrow = model.dtype in (torch.float16, torch.bfloat16)
    reason = can_widen(model, torch.float32) if narrow else None
    with ExitStack() as stack:
        if narrow and reason is None:
            stack.enter_context(widened(model, torch.float32))
        modules = _modules(model, inputs)
        reference = _reference(model, inputs, wanted, modules)
        measured = measure_forward(model, inputs, wanted)
        way, eager = "attention interface", None
        if any(measured.calls[layer] != 1 or layer not in measured.layers for layer in probe.layers):
            way, eager = "eager, one layer at a time", _needed(model, name, modules, probe.layers)
            reference = _reference(model, inputs, wanted, None)  # not by the modules that are read themselves
            measured = measure_forward(model, inputs, wanted, eager=eager)
        blocks = measure_forward(model, inputs, replace(wanted, block=SMALL_BLOCK), eager=eager)
        own = own_output(model, inputs) if probe.limit is None and not probe.masked else None
        exact, why = None, reason or ("an earlier proof's limit" if probe.limit is not None else None)
        if why is None:
            exact, why = _exact(model, inputs, wanted, modules if eager is None else None)
    sides = _Sides(measured, blocks, reference, exact, why, way, eager, reason is not None)
    proof = _compared(model, name, probe, sides, groups)
    refuse_other_attention(model, name, own, reference.hidden, limit=COARSE if narrow else OTHER)
    return proof


def _asked(model: PreTrainedModel, probe: Probe) -> tuple[dict[str, Any], Wanted, list[str]]:
    """The model's inputs, what is read, and the names of the query groups that are compared."""
    ids, real = padded(probe.prompts, left=probe.left)
    device = input_device(model)
    inputs: dict[str, Any] = {"input_ids": ids.to(device)}
    if probe.masked:
        inputs["attention_mask"] = real.long().to(device)
    rows = _rows(probe)
    groups = ["last" if probe.few else "all", *map(str, rows)]
    own = {str(row): [row] for row in rows}
    mixed = not bool(real.all())
    wanted = Wanted(
        row_weights(groups, real, [own] * len(real) if own else None),
        frozenset(probe.layers),
        probe.measures,
        ids=ids.tolist(),
        stop=may_stop(model) and not probe.observe,
        observe=probe.observe,
        real=real if probe.masked else None,
        lengths=[len(prompt) for prompt in probe.prompts] if mixed and not probe.masked else None,
    )
    return inputs, wanted, groups


def _rows(probe: Probe) -> list[int]:
    """Single rows from all over the shortest prompt; few enough, with the last, to take the path for few rows."""
    shortest = min(map(len, probe.prompts))
    count = min(ROWS, probe.tokens // FEW // len(set(map(len, probe.prompts))) - 1) if probe.few else ROWS
    rows = {round(row) for row in torch.linspace(0, shortest - 1, count + probe.few).tolist()} if count > 0 else set()
    return sorted(rows)[:count]


def padded(prompts: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids (B, longest) with zeros beside the shorter prompts, and which of them are real."""
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.int64)
    real = torch.zeros(ids.shape, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        place = slice(ids.shape[1] - len(prompt), None) if left else slice(len(prompt))
        ids[row, place] = torch.as_tensor(list(prompt))
        real[row, place] = True
    return ids, real


@dataclass(frozen=True)
class _Sides:
    """What is compared: our numbers, eager's, and eager's in float64."""

    measured: Forward
    blocks: Forward
    """Measured again in small blocks: a probe is shorter than a block, and prompts are longer."""
    reference: _Reference
    exact: _Reference | None
    reason: str | None
    way: str
    eager: EagerModules | None
    coarse: bool
    """Whether both sides are in 16 bits, because float32 could not be had."""


def _compared(model: PreTrainedModel, name: str, probe: Probe, sides: _Sides, groups: Sequence[str]) -> Proof:
    narrow = model.dtype in (torch.float16, torch.bfloat16)
    truth = sides.exact or sides.reference
    distances: dict[str, float] = {}
    roundings: dict[str, float] = {}
    for measure in probe.measures:
        limit, distance, rounding = _limit(measure, probe, sides, coarse=sides.coarse)
        distances[measure.name] = distance
        roundings[measure.name] = rounding
        if not distance <= limit:
            side = max((sides.measured, sides.blocks), key=lambda each: _furthest(each, truth, measure, probe.layers))
            raise _wrong(model, name, measure, distance, limit, _worst(side, truth, measure, probe.layers))
    received = [sides.measured.layers[layer].values[RECEIVED.name] for layer in probe.layers]
    sums = [each.sum(-1).float() for each in received]
    sinks = any("sinks" in sides.measured.layers[layer].kind for layer in probe.layers)
    first = groups.index("0") if "0" in groups else None
    ahead = [] if first is None else [float(each[:, :, first, 1:].abs().sum()) for each in received]
    alone = len(probe.prompts) == 1 and probe.tokens > 1
    limit, _, _ = _limit(RECEIVED, probe, sides, coarse=sides.coarse)
    return Proof(
        way=sides.way,
        difference=distances[RECEIVED.name],
        rounding=None if sides.exact is None else roundings[RECEIVED.name],
        limit=limit,
        dtype="float32" if narrow and not sides.coarse else str(model.dtype).removeprefix("torch."),
        reason=sides.reason,
        measures=distances,
        row_sum_error=_most([float((each - 1).relu().max() if sinks else (each - 1).abs().max()) for each in sums]),
        sink_share=_most([float((1 - each).max()) for each in sums]) if sinks else 0.0,
        causal=all(each == 0 for each in ahead) if ahead and alone else None,
        tokens=probe.tokens,
        rows=sum(group.isdigit() for group in groups),
        heads={layer: sides.measured.layers[layer].values[RECEIVED.name].shape[1] for layer in probe.layers},
        paths=paths_of(sides.measured),
        windows=frozenset(each.window for each in sides.measured.layers.values() if each.window is not None),
        eager=sides.eager,
    )


def paths_of(forward: Forward) -> frozenset[Path]:
    """What each layer's numbers went through."""
    return frozenset((layer, each.backend, each.kind) for layer, each in forward.layers.items())


class _Reference(Recorder):
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


def _reference(
    model: PreTrainedModel, inputs: Mapping[str, Any], wanted: Wanted, modules: EagerModules | None
) -> _Reference:
    """What eager attention gives: one layer's weights at a time where its modules are known, else all at once."""
    recorder = _Reference(Wanted(**{**vars(wanted), "stop": False}))
    if modules is not None and wanted.layers <= set(modules):
        with quiet(model), opened_eagerly(model, recorder, modules):
            recorder.hidden = hidden_of(model.base_model(**without_cache(model, inputs)))
        return recorder
    with quiet(model), hooks_kept(model), implementation(model, "eager"):
        outputs = model.base_model(**without_cache(model, inputs), output_attentions=True)
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


def refuse_row_sums(sums: NDArray[Any], proof: Proof, name: str) -> None:
    """Attention that added up to one on the probe and does not on a prompt was not read exactly.

    sums: what the keys receive together, of each group.
    """
    limit = 0.02 if proof.dtype in ("float16", "bfloat16") else OTHER
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


def reference_row(model: PreTrainedModel, ids: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
    """By layer, (1, heads, keys): what eager attention over the whole prompt gives the last query."""
    weights = torch.zeros(1, 1, ids.shape[1], device=ids.device)
    weights[..., -1] = 1
    inputs = {"input_ids": ids}
    recorder = _reference(model, inputs, Wanted(weights, frozenset(layers)), _modules(model, inputs))
    return {layer: each.values[RECEIVED.name][:, :, 0] for layer, each in recorder.results.items()}


def _exact(
    model: PreTrainedModel, inputs: Mapping[str, Any], wanted: Wanted, modules: EagerModules | None
) -> tuple[_Reference | None, str | None]:
    """Eager in float64, or why it can't be had."""
    if model.dtype == torch.float64:
        return None, "the model computes in float64"
    reason = can_widen(model, torch.float64)
    if reason is not None:
        return None, reason
    try:
        with widened(model, torch.float64):
            exact = _reference(model, inputs, wanted, modules)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:  # not every model computes in float64
        return None, f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
    if not all(bool(each.isfinite().all()) for result in exact.results.values() for each in result.values.values()):
        return None, "eager attention in float64 gives numbers that are not finite"  # where pads see nothing
    return exact, None


def _limit(measure: Measure, probe: Probe, sides: _Sides, *, coarse: bool) -> tuple[float, float, float]:
    """The limit for a measure, our distance from the truth, and eager's own rounding."""
    truth, layers = sides.exact or sides.reference, probe.layers
    scale = max(1.0, _most([float(truth.results[layer].values[measure.name].abs().max()) for layer in layers]))
    distance = _most(
        [_distance(side, truth, measure, layer) for layer in layers for side in (sides.measured, sides.blocks)]
    )
    if sides.exact is None:
        share = COARSE if coarse else probe.limit or UNKNOWN
        return share * scale, distance, 0.0
    rounding = _most([_distance(sides.reference, truth, measure, layer) for layer in layers])
    return max(FLOOR * scale, TIMES * rounding), distance, rounding


def _distance(side: Forward | _Reference, truth: _Reference, measure: Measure, layer: int) -> float:
    """NaN if anything is NaN. What near-ties can move is not counted."""
    results = side.layers if isinstance(side, Forward) else side.results
    apart = (results[layer].values[measure.name].double() - truth.results[layer].values[measure.name].double()).abs()
    slack = truth.slack.get((layer, measure.name))
    if slack is not None:
        apart = torch.where(apart.isnan(), apart, (apart - (slack[..., None] if apart.dim() == 4 else slack)).relu())
    return float(apart.max())


def _furthest(side: Forward, truth: _Reference, measure: Measure, layers: Sequence[int]) -> float:
    """The largest distance; infinite if anything is NaN."""
    distance = _most([_distance(side, truth, measure, layer) for layer in layers])
    return float("inf") if distance != distance else distance


def _most(values: Sequence[float]) -> float:
    """The largest; NaN if one of them is."""
    return float(torch.tensor(list(values) or [0.0], dtype=torch.float64).max())


def _worst(measured: Forward, truth: _Reference, measure: Measure, layers: Sequence[int]) -> tuple[int, int]:
    """The layer and head that differ most, or the first that is not a number."""
    worst, place = -1.0, (layers[0], 0)
    for layer in layers:
        one, two = measured.layers[layer].values[measure.name], truth.results[layer].values[measure.name]
        apart = (one.double() - two.double()).abs().transpose(0, 1).flatten(1).amax(1)  # (heads,)
        for head, value in enumerate(apart.tolist()):
            if value != value:
                return layer, head
            if value > worst:
                worst, place = value, (layer, head)
    return place


def _modules(model: PreTrainedModel, inputs: Mapping[str, Any]) -> EagerModules:
    """The modules that return each layer's attention weights in eager mode; found on the first few tokens."""
    short = {"input_ids": inputs["input_ids"][:1, -8:]}
    with quiet(model):
        return find_modules(model, short)


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


def _wrong(
    model: PreTrainedModel, name: str, measure: Measure, distance: float, limit: float, place: tuple[int, int]
) -> AttnscopeError:
    where = f"layer {place[0]}, head {place[1]}"
    if measure is not RECEIVED:  # the attention it is computed from has been compared already
        if distance != distance:
            return not_finite(measure, f"{where} of {name}")
        what = f"has a block and a reference that differ by {distance:.1e} in {where} of {name}"
        return MEASURES.mistake(measure.name, "block and reference", what, f"at most {limit:.1e}")
    if distance != distance:
        return AttnscopeError(
            f"{name} computes numbers that are not finite",
            where=where,
            allowed="finite weights and activations",
            todo="check the model's weights, or try another dtype",
        )
    return AttnscopeError(
        f"{name} can't be read exactly: its attention and {type(model).__name__}'s eager attention differ by "
        f"{distance:.1e}",
        where=where,
        allowed=f"at most {limit:.1e}",
        todo="choose another model",
    )
