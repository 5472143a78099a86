"""Recording: attention read while somebody else's code runs the model: a loop, an evaluation, `generate`.

Each forward of the model becomes one step. With a cache, a step's queries are the new tokens and its keys are all
tokens so far, so the steps of `generate` show what each written token looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnscope.arguments import count_of
from attnscope.attention.blame import not_finite
from attnscope.attention.call import AnyCall, Call
from attnscope.attention.evidence import Evidence, compared_before
from attnscope.attention.forward import door
from attnscope.attention.given import arguments_of, caches_of, real_tokens, refuse_mask, refuse_weights
from attnscope.attention.groups import NAMED, row_weights
from attnscope.attention.hooks import only_for
from attnscope.attention.interface import is_own, uncompiled
from attnscope.attention.own_attention import refuse_other_function
from attnscope.attention.probe import places_of
from attnscope.attention.proof import Path, Proof, refuse_row_sums
from attnscope.attention.recorder import Own, Recorder, Wanted, refuse_uneven_heads
from attnscope.attention.reduce import over_defined
from attnscope.attention.seam import Edits, NoEdits, PlacedEdits, placed_in, refuse_absent
from attnscope.attention.turns import Depth, Turn, lock_of
from attnscope.edits.attention import AttentionEdit
from attnscope.errors import AttnscopeError, Parameter, near
from attnscope.measures import KEY, Measure
from attnscope.records import DEFINED, RECEIVED, Labelled
from attnscope.text.rules import Tokenized
from attnscope.text.tokens import Token


@dataclass(frozen=True)
class Step:
    """One forward. Each measure: (prompt, layer, head, queries[, key]); keys are counted from 0, pads included.

    A measure is NaN where no query of a group has a value, as a record's is.
    """

    number: int
    queries: int
    """How many tokens this forward was given per prompt."""
    keys: int
    """How many tokens they could see, the earlier ones of the cache included."""
    values: dict[str, Labelled]
    paths: frozenset[Path]
    shares: dict[str, Labelled] = field(default_factory=dict)
    """Of measures that some queries have no value of: the share of the group's queries that have one."""

    @property
    def received(self) -> Labelled:
        """Attention that each key receives: prompt, layer, head, queries, key."""
        return self.values[RECEIVED]

    def __getitem__(self, measure: str) -> Labelled:
        """A measure's numbers, by name."""
        if not isinstance(measure, str) or measure not in self.values:
            raise AttnscopeError(
                f"measure '{measure}' was not asked for",
                where=f"step['{measure}']",
                allowed=near(str(measure), self.values),
                todo=f"record it: measures=['{measure}']",
            )
        return self.values[measure]

    def defined(self, measure: str) -> Labelled:
        """The share of the group's queries for which the measure has a value: (prompt, layer, head, queries)."""
        self[measure]  # refuses an unknown one
        if measure in self.shares:
            return self.shares[measure]
        received = self.received
        return Labelled(np.ones_like(received.values[..., 0]), received.axes[:-1], received.labels)


class Recording:
    """What was recorded, step by step."""

    exclusive = False
    thread: int | None = None

    def __init__(
        self,
        name: str,
        queries: Sequence[str],
        layers: Sequence[int],
        heads: Sequence[int] | None,
        measures: tuple[Measure, ...],
        evidence: Evidence,
        edits: Sequence[AttentionEdit] = (),
    ):
        self._name = name
        self.queries, self.heads = list(queries), heads
        self.layers: frozenset[int] = frozenset(layers)
        self.steps: list[Step] = []
        """One per forward, in the order they ended."""
        self.proofs, self._evidence = evidence.proofs, evidence
        self._measures, self._edits = measures, list(edits)
        self._lock = threading.Lock()
        self._here = threading.local()
        self._depth = Depth()

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        steps = f"{len(self.steps)} step{'s' * (len(self.steps) != 1)}"
        return f"Recording({steps}; layers {sorted(self.layers)}; queries {', '.join(self.queries)})"

    @property
    def received(self) -> list[Labelled]:
        """Attention received, one entry per forward step: (prompt, layer, head, queries, key)."""
        return [step.received for step in self.steps]

    def __getitem__(self, measure: str) -> list[Labelled]:
        """A measure, one entry per forward step."""
        return [step[measure] for step in self.steps]

    def lookback(self, keys: int | None = None) -> Labelled:
        """The share of attention on the first `keys` keys (by default those of the first step: the prompt), by step.

        Axes: step, prompt, layer, head, queries. The steps must be those of one text, as `generate` makes them.
        """
        if not self.steps:
            raise AttnscopeError(
                "nothing was recorded", where="lookback", allowed="at least one step", todo="run the model"
            )
        first = self.steps[0]
        count = first.keys if keys is None else count_of(keys, "keys", "leave it out for the keys of the first step")
        for before, step in pairwise(self.steps):
            if step.keys <= before.keys or step.received.shape[0] != before.received.shape[0]:
                raise AttnscopeError(
                    f"step {step.number} begins another text",
                    where="lookback",
                    allowed="steps of one text, each with more keys than the one before",
                    todo="record each call of generate on its own",
                )
        shares = np.stack([step.received.values[..., :count].sum(-1) for step in self.steps])
        labels = {"step": [step.number for step in self.steps], **first.received.labels}
        axes = ("step", *first.received.axes[:-1])
        return Labelled(shares, axes, {axis: labels[axis] for axis in axes})

    # what the model's doors call

    @property
    def real(self) -> Tensor | None:
        """(B, keys): False at pads; None if there are none."""
        recorder = self._recorder
        return None if recorder is None else recorder.real

    @property
    def edits(self) -> Edits:
        """Those of the step under way."""
        return NoEdits() if self._recorder is None else self._recorder.wanted.edits

    @property
    def _recorder(self) -> Recorder | None:
        return getattr(self._here, "recorder", None)

    def written(self, layer: int, queries: int) -> int | None:
        """How many of a layer's keys are written by now; a cache, also an empty one, may have room for more."""
        if self._recorder is None or layer not in self._here.caches:
            return None
        cached, offset = self._here.caches[layer]
        return int(cached - offset + queries)

    def attention(self, layer: int, call: AnyCall, own: Own | None = None) -> Tensor | None:
        """Reads a call of the step under way; calls outside any step, as in a backward pass, are left alone."""
        recorder = self._recorder
        if recorder is None or is_own():
            return None
        rows = recorder.wanted.weights.shape[-1]
        if call.queries != rows or call.batch != len(recorder.wanted.weights):
            return None  # not the text's tokens: an image tower, or heads of another kind
        if layer in self._here.caches and isinstance(call, Call):
            cached, offset = self._here.caches[layer]
            call = replace(call, start=cached - offset, gone=offset)
        if isinstance(call, Call) and call.foreign and own is not None:
            read = (recorder.wanted.weights != 0).any(1)
            refuse_other_function(self._name, layer, call, own(), read, proven=self.proofs[0].tokens)
        device = call.device.type
        if not torch.is_autocast_enabled(device):
            return recorder.attention(layer, call.detached(), own)
        narrow = torch.get_autocast_dtype(device)
        its_own = None if own is None else torch.autocast(device, narrow)(own)
        with torch.autocast(device, enabled=False):  # sums are made in float32 all the same
            return recorder.attention(layer, call.cast(narrow).detached(), its_own)

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward of the model begins."""
        self._depth.enter()
        if len(self._depth.frames) > 1:
            return
        self._here.recorder = None
        if is_own():
            return
        named = arguments_of(module, args, kwargs)
        ids, embeddings = named.get("input_ids"), named.get("inputs_embeds")
        given = ids if ids is not None else embeddings
        if given is None:
            return
        refuse_weights(module, named)
        batch, queries = given.shape[:2]
        self._here.caches = caches_of(named.get("past_key_values"), queries, self.layers | self._edited)
        cached = max((tokens for tokens, _ in self._here.caches.values()), default=0)
        refuse_mask(module, named.get("attention_mask"))
        flags, real = real_tokens(named.get("attention_mask"), batch, queries, cached)
        if not (real.all() and (flags is None or flags.all())):
            self._evidence.refuse_pads(cached=named.get("past_key_values") is not None)
            self._refuse_edits_beside_pads()
        self._here.recorder = Recorder(
            Wanted(
                row_weights(self.queries, real).to(given.device),
                self.layers,
                self._measures,
                ids=ids.tolist() if ids is not None and not cached else None,
                places=places_of(real),
                edits=self._placed_edits(module, batch, cached + queries),
                stop=False,
                real=flags,
            )
        )

    @property
    def _edited(self) -> frozenset[int]:
        """The layers that some edit changes."""
        every = range(max(self.proofs[0].heads) + 1)
        return frozenset(layer for layer in every if any(edit.applies_to(layer) for edit in self._edits))

    def _placed_edits(self, module: nn.Module, batch: int, tokens: int) -> Edits:
        """The edits for prompts of so many tokens so far."""
        if not self._edits:
            return NoEdits()
        if module.training or torch.is_grad_enabled():
            raise AttnscopeError(
                "attention is edited in a forward with gradients or dropout",
                where=Parameter("edits"),
                allowed="forwards in evaluation mode, without gradients",
                todo="call model.eval() and run the model under torch.no_grad()",
            )
        prompt = Tokenized("", [Token(place, -1, "", 0, 0, special=False) for place in range(tokens)])
        return PlacedEdits([placed_in(prompt, self._edits)] * batch, [tokens] * batch)

    def _refuse_edits_beside_pads(self) -> None:
        if self._edits:
            raise AttnscopeError(
                "attention is edited in a batch with pads, where a position is another token in each prompt",
                where=Parameter("edits"),
                allowed="batches of prompts of one length",
                todo="run the prompts one by one",
            )

    def end(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        """A forward of the model is over; it becomes a step if it ran to its end and gave an output."""
        if not self._depth.leave() or self._depth.frames:
            return
        recorder, self._here.recorder = self._recorder, None
        if recorder is not None and output is not None:
            _refuse_if_incomplete(recorder, self.layers)
            with self._lock:
                step = self._step(len(self.steps), recorder)
                self._refuse_if_unproven(step)
                self.steps.append(step)

    def _refuse_if_unproven(self, step: Step) -> None:
        missing = self._evidence.unproven(step.paths)
        if missing:
            layer, backend, kind = min(missing)
            raise AttnscopeError(
                f"layer {layer} took a path that could not be compared with eager attention",
                where=f"{backend} backend, {kind}, {step.keys} keys",
                allowed="paths that a short prompt takes, alone, padded or with a cache",
                todo="measure the prompt with a Lens, which compares on a longer one",
            )

    def abandon(self) -> None:
        """A forward failed: its step is dropped."""
        self._here.recorder = None
        self._depth.frames.clear()

    def _step(self, number: int, recorder: Recorder) -> Step:
        layers = sorted(self.layers)
        values: dict[str, Labelled] = {}
        rows, caches = recorder.wanted.weights.shape[-1], self._here.caches
        tokens = max((cached for cached, _ in caches.values()), default=0) + rows
        refuse_uneven_heads(self._name, [recorder.results[layer] for layer in layers])
        shares: dict[str, Labelled] = {}
        for measure in self._measures:
            by_layer = [recorder.results[layer].values[measure.name].float().cpu().numpy() for layer in layers]
            if measure.axes == KEY:  # caches may hold keys that are not written yet, or have let go of the first ones
                by_layer = [
                    _placed(each, caches.get(layer, (0, 0))[1], tokens)
                    for layer, each in zip(layers, by_layer, strict=True)
                ]
            if measure.partial:  # some queries have no value: the mean is over the others
                defined = [recorder.results[layer].view[f"{measure.name}{DEFINED}"] for layer in layers]
                counted = [np.broadcast_to(each.float().cpu().numpy(), by_layer[0].shape[:3]) for each in defined]
                by_layer = [over_defined(sums, each) for sums, each in zip(by_layer, counted, strict=True)]
                shares[measure.name] = self._labelled(np.stack(counted, 1), layers)
            labelled = self._labelled(np.stack(by_layer, 1), layers)
            _refuse_if_not_finite(measure, labelled, layers)
            if measure.partial:
                labelled = _where_defined(labelled, shares[measure.name])
            values[measure.name] = labelled
        narrow = torch.is_autocast_enabled(recorder.wanted.weights.device.type)
        if not self._edits:
            refuse_row_sums(values[RECEIVED].values.sum(-1), self.proofs[0], self._name, narrow=narrow)
        paths = frozenset((layer, each.backend, each.kind) for layer, each in recorder.results.items())
        return Step(number, rows, tokens, values, paths, shares)

    def _labelled(self, values: NDArray[Any], layers: Sequence[int]) -> Labelled:
        """Values (prompt, layer, head, queries[, key])."""
        heads = list(range(values.shape[2])) if self.heads is None else list(self.heads)
        values = values if self.heads is None else values[:, :, heads]
        axes = ("prompt", "layer", "head", "queries", "key")[: values.ndim]
        labels = dict(zip(axes, map(range, values.shape), strict=True))
        return Labelled(values, axes, {**labels, "layer": list(layers), "head": heads, "queries": self.queries})


@contextmanager
def recording(
    model: PreTrainedModel,
    name: str,
    *,
    queries: Sequence[str],
    layers: Sequence[int],
    heads: Sequence[int] | None,
    measures: tuple[Measure, ...],
    context: int | None,
    edits: Sequence[AttentionEdit] = (),
) -> Iterator[Recording]:
    """Inside, forwards of the model are recorded; after, nothing is left on it. The model is proven first.

    context: how many tokens the model takes, if there is a limit.
    """
    unknown = [group for group in queries if group not in NAMED]
    if unknown or not queries:
        raise AttnscopeError(
            f"unknown query group '{unknown[0]}'" if unknown else "no query group is named",
            where=Parameter("queries"),
            allowed=", ".join(NAMED),
            todo="name one or both",
        )
    evidence = compared_before(model, name, queries, layers, measures, context)
    _refuse_absent_edits(name, evidence.proofs[0], edits)
    record = Recording(name, queries, layers, heads, measures, evidence, edits)
    with lock_of(model):  # not while another thread is between the two hooks
        hooks = _listen(model, record)
    try:
        yield record
    except BaseException:
        record.abandon()
        raise
    finally:
        with lock_of(model):
            hooks.close()
    _refuse_if_unseen(record, name)


def _listen(model: PreTrainedModel, record: Recording) -> ExitStack:
    """Let the recording hear the model until the stack is closed."""
    turn = Turn(model)
    bodies = _distinct(model.base_model, _decoder(model.base_model))
    runners = _distinct(model, *bodies)
    with ExitStack() as stack:
        stack.callback(turn.close)
        for runner in runners:
            stack.callback(runner.register_forward_pre_hook(uncompiled(only_for(runners, turn.begin))).remove)
        for body in bodies:
            stack.callback(
                body.register_forward_pre_hook(uncompiled(only_for(bodies, record.begin)), with_kwargs=True).remove
            )
            stack.callback(
                body.register_forward_hook(uncompiled(only_for(bodies, record.end)), always_call=True).remove
            )
        for runner in runners:
            stack.callback(
                runner.register_forward_hook(uncompiled(only_for(runners, turn.end)), always_call=True).remove
            )
        stack.enter_context(door(model, record, record.proofs[0].eager, as_is=True))
        return stack.pop_all()


def _decoder(body: nn.Module) -> nn.Module:
    """What OPT's head runs instead of the whole body; elsewhere the body itself, or a part that runs inside it."""
    find = getattr(body, "get_decoder", None)
    decoder = None if find is None else find()
    return decoder if isinstance(decoder, nn.Module) else body


def _distinct(*modules: nn.Module) -> list[nn.Module]:
    return list({id(each): each for each in modules}.values())


def _placed(values: NDArray[Any], offset: int, tokens: int) -> NDArray[Any]:
    """(..., keys of a cache) -> (..., tokens so far): keys that no query sees any more receive nothing."""
    placed = np.zeros((*values.shape[:-1], tokens), dtype=values.dtype)
    reach = min(values.shape[-1], tokens - offset)
    placed[..., offset : offset + reach] = values[..., :reach]
    return placed


def _refuse_if_incomplete(recorder: Recorder, layers: frozenset[int]) -> None:
    wrong = sorted(layer for layer in layers if recorder.calls[layer] != 1 or layer not in recorder.results)
    if wrong:
        raise AttnscopeError(
            "this forward can't be recorded exactly",
            where=f"layers {wrong}",
            allowed="one attention call per layer and forward",
            todo="record other layers, or measure the prompt with a Lens",
        )


def _where_defined(values: Labelled, share: Labelled) -> Labelled:
    """NaN where no query of a group has a value."""
    none = share.values == 0
    known = np.where(none if none.ndim == values.values.ndim else none[..., None], np.nan, values.values)
    return replace(values, values=known)


def _refuse_if_not_finite(measure: Measure, values: Labelled, layers: Sequence[int]) -> None:
    if np.isfinite(values.values).all():
        return
    _, layer, head = np.argwhere(~np.isfinite(values.values))[0][:3]
    if measure.name != RECEIVED:  # which was looked at first
        raise not_finite(measure, f"layer {layers[layer]}, head {head}")
    raise AttnscopeError(
        "the model computes numbers that are not finite",
        where=f"layer {layers[layer]}, head {head}",
        allowed="finite attention weights",
        todo="check the model's weights and inputs, or try another dtype",
    )


def _refuse_absent_edits(name: str, proof: Proof, edits: Sequence[AttentionEdit]) -> None:
    layers = sorted(proof.heads)
    refuse_absent(PlacedEdits([list(edits)], [0]), name, layers, {}, lambda: proof.heads)


def _refuse_if_unseen(record: Recording, name: str) -> None:
    if not record.steps:
        raise AttnscopeError(
            f"no forward of {name} was seen while it was recorded",
            where="record",
            allowed="forwards of the model that was given, uncompiled or compiled without CUDA graphs",
            todo="run the very model that you gave to record, inside the with block",
        )
