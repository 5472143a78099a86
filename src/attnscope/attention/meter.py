"""The meter: token ids in, numbers out, on a model that has first been shown to be read exactly.

Before a reading takes a path for the first time, the meter reads a probe along the same path and compares it with the
model's own eager attention. What doesn't agree is refused; a model outside the attention interface is read through its
own eager attention, one layer at a time; a model with neither is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.ask import FEW
from attnscope.attention.blame import not_finite
from attnscope.attention.device import input_device
from attnscope.attention.forward import Forward, may_stop, measure_forward
from attnscope.attention.groups import Rows, present, row_weights
from attnscope.attention.head_outputs import KeptOutputs
from attnscope.attention.interface import has_foreign_attention
from attnscope.attention.probe import Probe, padded
from attnscope.attention.proof import Path, Proof, looked_at, paths_of, prove, refuse_row_sums
from attnscope.attention.recorder import LayerResult, Wanted, refuse_uneven_heads
from attnscope.attention.reduce import over_defined
from attnscope.attention.room import room_for
from attnscope.attention.rotary import length_matters
from attnscope.attention.seam import Edits, NoEdits, refuse_absent
from attnscope.attention.view import HIDDEN
from attnscope.clock import Clock
from attnscope.errors import AttnscopeError, Parameter, StoppingError
from attnscope.measures import Measure
from attnscope.measures.received import RECEIVED
from attnscope.models.memory import eager_tokens, free_memory
from attnscope.records import DEFINED, UNIFORM, VIEW

SHORT = 64  # tokens of a probe, unless a window is to bind
BEYOND = 64  # tokens of a probe beyond the window


@dataclass(frozen=True)
class Request:
    """What is read of each prompt of a batch."""

    queries: Sequence[str]
    layers: Sequence[int]
    measures: tuple[Measure, ...] = (RECEIVED,)
    edits: Edits = field(default_factory=NoEdits)
    allow_unproven: bool = False
    partial: bool = False
    """Whether prompts may lack groups that others of the batch have."""


@dataclass(frozen=True)
class Numbers:
    """One prompt's numbers, as a record has them, and what they went through."""

    arrays: dict[str, NDArray[Any]]
    queries: list[str]
    """The groups that the prompt has."""
    paths: frozenset[Path]
    proof: Proof
    unproven: list[str]
    """Layers on paths that could not be proven; only where that was allowed."""


class Meter:
    """Reads one model.

    unreadable: layers without softmax attention, with the reason. probe: a plain text's first so many token ids.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        name: str,
        layers: int,
        unreadable: Mapping[int, str],
        probe: Callable[[int], list[int]],
    ) -> None:
        self.model = model
        self.name = name
        self.layers = layers
        self.unreadable = dict(unreadable)
        self.readable = [layer for layer in range(layers) if layer not in self.unreadable]
        self.vocabulary = len(next(model.get_input_embeddings().parameters()))
        self.clock = Clock()
        self.proving = True
        """Whether paths are compared with eager attention; if not, all numbers are unproven."""
        self.probe = probe
        self._proofs: dict[tuple[Any, ...], Proof] = {}
        self._batches: dict[tuple[Any, ...], frozenset[Path] | None] = {}

    def proof(self, request: Request, *, few: bool = False, tokens: int = SHORT) -> Proof:
        """The evidence for the paths of a request; made once for each kind."""
        key = (tuple(request.layers), few, tuple(each.name for each in request.measures), tokens, self.proving)
        if key not in self._proofs:
            probe = Probe([self.probe(tokens)], request.layers, few, request.measures)
            with self.clock.phase("proof" if self.proving else "loading"):
                self._proofs[key] = (prove if self.proving else looked_at)(self.model, self.name, probe)
        return self._proofs[key]

    def compared(self, ids: Sequence[int], request: Request, *, few: bool = False) -> Proof:
        """The same on ids of your own, each time anew."""
        return prove(self.model, self.name, Probe([ids], request.layers, few, request.measures))

    def read(
        self,
        prompts: Sequence[Sequence[int]],
        request: Request,
        rows: Sequence[Mapping[str, Rows]] | None = None,
    ) -> list[Numbers]:
        """A batch of prompts (token ids) -> the numbers of each, as it would get them alone."""
        lengths = [len(prompt) for prompt in prompts]
        mixed = len(set(lengths)) > 1
        if len(prompts) > 1 and self._batch_paths(request, _few(request, lengths, rows), mixed=mixed) is None:
            own = [None] * len(prompts) if rows is None else [[each] for each in rows]
            return [self._batch([prompt], request, each)[0] for prompt, each in zip(prompts, own, strict=True)]
        return self._batch(prompts, request, rows)

    def head_outputs(
        self, prompts: Sequence[Sequence[int]], heads: Mapping[int, Sequence[int]]
    ) -> list[dict[int, dict[int, NDArray[Any]]]]:
        """What heads give for each prompt of a batch, by layer and head: (tokens, width), as it would get it alone."""
        request = Request(["all"], self.readable)
        proof = self.proof(request)
        if proof.eager is not None:
            raise AttnscopeError(
                f"the outputs of {self.name}'s heads can't be read",
                where=type(self.model).__name__,
                allowed="models that follow transformers' attention interface",
                todo="switch heads off instead, or choose another model",
            )
        lengths = [len(prompt) for prompt in prompts]
        mixed = len(set(lengths)) > 1
        if len(prompts) > 1 and self._batch_paths(request, few=False, mixed=mixed) is None:
            return [self.head_outputs([prompt], heads)[0] for prompt in prompts]
        kept = KeptOutputs(self.name, heads, lengths, stop=may_stop(self.model))
        self.refuse_edits(kept)
        causal = self._causal(proof, request)
        self._forward(prompts, replace(request, layers=[], edits=kept), None, causal=causal, proof=proof)
        return kept.prompts

    def refuse_edits(self, edits: Edits) -> None:
        """Edits of what the model does not have."""
        refuse_absent(edits, self.name, self.readable, self.unreadable, lambda: self.heads)

    def _batch(
        self, prompts: Sequence[Sequence[int]], request: Request, rows: Sequence[Mapping[str, Rows]] | None
    ) -> list[Numbers]:
        lengths = [len(prompt) for prompt in prompts]
        few = _few(request, lengths, rows)
        proof = self._proof_for(max(lengths), request, few)
        self.refuse_edits(request.edits)
        forward = self._forward(prompts, request, rows, causal=self._causal(proof, request), proof=proof)
        unproven = self._unproven(forward, request, few, proof, lengths)
        paths = paths_of(forward)
        numbers = []
        for prompt, length in enumerate(lengths):
            groups = present(request.queries, None if rows is None else rows[prompt])
            arrays = _arrays(self.name, forward, request, proof, _Part(prompt, length, groups))
            numbers.append(Numbers(arrays, [request.queries[each] for each in groups], paths, proof, unproven))
        return numbers

    def _proof_for(self, longest: int, request: Request, few: bool) -> Proof:
        """On a probe in which windows bind, if they bind in the prompt; as long as it, if anything may bind."""
        proof = self.proof(request, few=few)
        if not self.proving:
            return proof
        if longest > proof.tokens and has_foreign_attention(self.model):
            return self._proof_of_length(longest, request, few, proof)
        window = max((each for each in proof.windows if each < longest), default=0)
        if window < proof.tokens:
            return proof
        tokens = self._longest_probe(min(longest, window + BEYOND), proof)
        return proof if tokens <= proof.tokens else self.proof(request, few=few, tokens=tokens)

    def _proof_of_length(self, longest: int, request: Request, few: bool, proof: Proof) -> Proof:
        """For attention functions that somebody registered: nobody knows what they do with longer prompts."""
        tokens = self._longest_probe(1 << (longest - 1).bit_length(), proof)
        if tokens < longest and not request.allow_unproven:
            raise AttnscopeError(
                f"the attention function of {self.name} can't be compared with eager attention on so long a prompt",
                where=f"{longest} tokens",
                allowed=f"{tokens} tokens, which eager attention has memory for",
                todo="use shorter prompts, or load the model with attn_implementation='sdpa'",
            )
        return self.proof(request, few=few, tokens=tokens)

    def _longest_probe(self, tokens: int, proof: Proof) -> int:
        """As many tokens as eager attention fits over."""
        return min(tokens, eager_tokens(free_memory(input_device(self.model)), max(proof.heads.values())))

    def _unproven(
        self, forward: Forward, request: Request, few: bool, proof: Proof, lengths: Sequence[int]
    ) -> list[str]:
        """Layers that went along a path that no proof took; refused unless that was allowed."""
        if not self.proving:
            return _path_words(paths_of(forward))
        proven, paths = proof.paths, paths_of(forward)
        if not isinstance(request.edits, NoEdits):
            # eager attention has no such edit: the paths are proven without it, with few rows read and with all
            proven = proven | self.proof(request, few=not few).paths
            paths = frozenset((layer, backend, kind.removesuffix(HIDDEN)) for layer, backend, kind in paths)
        missing = paths - proven
        if missing and len(set(lengths)) > 1:
            missing -= self._batch_paths(request, few, mixed=True) or frozenset()
        tokens = self._longest_probe(max(lengths), proof)
        if missing and tokens != proof.tokens:  # longer or shorter prompts may take paths of their own
            missing -= self.proof(request, few=few, tokens=tokens).paths
        if missing and not request.allow_unproven:
            layer, backend, kind = min(missing)
            raise AttnscopeError(
                f"layer {layer} of {self.name} was read along a path that could not be compared with eager attention",
                where=f"{backend} backend, {kind}, {max(lengths)} tokens",
                allowed=f"paths that occur in a probe of {proof.tokens} tokens",
                todo=("use shorter prompts, or pass ", Parameter("allow_unproven", True), " to get unproven numbers"),
            )
        return _path_words(missing)

    @property
    def heads(self) -> dict[int, int]:
        """How many heads each readable layer has."""
        known = next((proof.heads for proof in self._proofs.values() if set(self.readable) <= set(proof.heads)), None)
        return self.proof(Request(["all"], self.readable)).heads if known is None else known

    @property
    def causal(self) -> bool:
        """Whether no query sees a later key, as a proof that was made for a reading showed."""
        known = [proof.causal for proof in self._proofs.values() if proof.causal is not None]
        return known[0] if known else bool(self.proof(Request(["all"], self.readable)).causal)

    def _causal(self, proof: Proof, request: Request) -> bool:
        return proof.causal if proof.causal is not None else bool(self.proof(request).causal)

    def _batch_paths(self, request: Request, few: bool, *, mixed: bool) -> frozenset[Path] | None:
        """The paths of prompts that share a forward; None if they can't share one. mixed: they differ in length.

        Tried out once, on two prompts. Some models look at pads outside attention (convolutions, neighbouring
        embeddings), or across the batch, and positions that are scaled by the length of the input are scaled by the
        longest prompt's.
        """
        key = (tuple(request.layers), few, tuple(each.name for each in request.measures), mixed, self.proving)
        if key not in self._batches:
            apart = mixed and length_matters(self.model.config)
            with self.clock.phase("proof" if self.proving else "loading"):
                self._batches[key] = None if apart else self._try_batch(request, few, mixed=mixed)
        return self._batches[key]

    def _try_batch(self, request: Request, few: bool, *, mixed: bool) -> frozenset[Path] | None:
        proof = self.proof(request, few=few)
        long = self.probe(proof.tokens)
        short = long[: max(2, len(long) // 3)] if mixed else long[::-1]
        causal = self._causal(proof, request)
        probe = Probe(
            [short, long], request.layers, few, request.measures, masked=mixed and not causal, limit=proof.limit
        )
        try:
            shared = (prove if self.proving else looked_at)(self.model, self.name, probe)
        except StoppingError:
            raise
        except AttnscopeError:
            return None
        asked = replace(request, queries=["last"] if few else ["last", "all"], edits=NoEdits())
        together, alone = (
            self._forward(prompts, asked, None, causal=causal, proof=proof) for prompts in ([short, long], [short])
        )
        narrow = self.model.dtype in (torch.float16, torch.bfloat16)
        for layer in asked.layers:
            one, two = (each.layers[layer].values[RECEIVED.name] for each in (together, alone))
            if not float((one[:1, ..., : len(short)] - two).abs().max()) <= (2e-2 if narrow else proof.limit):
                return None
        return shared.paths | paths_of(together) | paths_of(alone)

    def _forward(
        self,
        prompts: Sequence[Sequence[int]],
        request: Request,
        rows: Sequence[Mapping[str, Rows]] | None,
        *,
        causal: bool,
        proof: Proof,
    ) -> Forward:
        ids, real = padded(prompts)
        device = input_device(self.model)
        inputs: dict[str, Any] = {"input_ids": ids.to(device)}
        mixed = not bool(real.all())
        if mixed and not causal:
            inputs["attention_mask"] = real.long().to(device)
        # pads come last, so under a causal mask no real query sees one and no mask is needed
        wanted = Wanted(
            row_weights(request.queries, real, rows, partial=request.partial),
            frozenset(request.layers),
            request.measures,
            ids=[list(prompt) for prompt in prompts],
            edits=request.edits,
            stop=may_stop(self.model),
            real=real if mixed and not causal else None,
            lengths=[len(prompt) for prompt in prompts] if mixed and causal else None,
        )
        with room_for("this forward", f"{self.name}, {tuple(ids.shape)} tokens"):
            forward = measure_forward(self.model, inputs, wanted, eager=proof.eager)
        wrong = [layer for layer in request.layers if forward.calls[layer] != 1 or layer not in forward.layers]
        if wrong:
            raise AttnscopeError(
                f"{self.name} can't be read exactly",
                where=f"layers {wrong}",
                allowed="one attention call per layer and forward",
                todo="measure other layers, or another model",
            )
        return forward


def _path_words(paths: frozenset[Path]) -> list[str]:
    return sorted(f"layer {layer}: {backend}, {kind}" for layer, backend, kind in paths)


def _few(request: Request, lengths: Sequence[int], rows: Sequence[Mapping[str, Rows]] | None) -> bool:
    """Whether the path for few rows is taken."""
    real = torch.arange(max(lengths)) < torch.as_tensor(lengths)[:, None]
    used = (row_weights(request.queries, real, rows, partial=request.partial) != 0).any(1).any(0)
    return int(used.sum()) * FEW <= max(lengths)


@dataclass(frozen=True)
class _Part:
    """What of a batch is one prompt's: its number, its tokens, and its query groups by place."""

    prompt: int
    length: int
    groups: list[int]

    def of(self, values: Tensor, per_key: bool) -> Tensor:
        """Its part of (prompts, heads or 1, groups[, keys])."""
        mine = values[self.prompt]
        if self.groups != list(range(mine.shape[1])):
            mine = mine[:, self.groups]
        return (mine[..., : self.length] if per_key else mine).float().cpu()


def _arrays(name: str, forward: Forward, request: Request, proof: Proof, part: _Part) -> dict[str, NDArray[Any]]:
    """A record's arrays of one prompt. Layers that share a view keep its numbers once."""
    results = [forward.layers[layer] for layer in request.layers]
    refuse_uneven_heads(name, results)
    arrays: dict[str, NDArray[Any]] = {}
    for measure in request.measures:
        arrays[measure.name] = _finite(name, measure, results, request.layers, part)
    if isinstance(request.edits, NoEdits):
        refuse_row_sums(arrays[RECEIVED.name].sum(-1), proof, name)
    views: dict[bytes, int] = {}
    firsts: list[dict[str, NDArray[Any]]] = []
    numbers = np.zeros(len(results), dtype=np.int32)
    for place, each in enumerate(results):
        view = {key: part.of(value, value.dim() == 4).numpy() for key, value in each.view.items()}
        content = b"".join(value.tobytes() for value in view.values())
        if content not in views:
            views[content] = len(firsts)
            firsts.append(view)
        numbers[place] = views[content]
    arrays[VIEW] = numbers
    for key in firsts[0]:
        every = [view[key] for view in firsts]
        most = max(len(each) for each in every)  # some masks differ by head, others don't
        arrays[key] = np.stack([np.broadcast_to(each, (most, *each.shape[1:])) for each in every])
    for measure in request.measures:
        if measure.partial:
            uniform, share = f"{measure.name}{UNIFORM}", arrays[f"{measure.name}{DEFINED}"]  # of each view
            arrays[measure.name] = over_defined(arrays[measure.name], share[arrays[VIEW]])
            arrays[uniform] = over_defined(arrays[uniform], share)
    return arrays


def _finite(
    name: str, measure: Measure, results: Sequence[LayerResult], layers: Sequence[int], part: _Part
) -> NDArray[np.float32]:
    """One prompt's (layers, heads, groups[, keys])."""
    by_layer = [part.of(each.values[measure.name], "key" in measure.axes) for each in results]
    for layer, values in zip(layers, by_layer, strict=True):
        if not values.isfinite().all():
            raise _not_finite(name, measure, layer, int((~values.isfinite()).nonzero()[0, 0]))
    return torch.stack(by_layer).numpy()


def _not_finite(name: str, measure: Measure, layer: int, head: int) -> AttnscopeError:
    if measure is not RECEIVED:  # which was looked at first
        return not_finite(measure, f"layer {layer}, head {head} of {name}")
    return AttnscopeError(
        f"{name} computes numbers that are not finite on this prompt",
        where=f"layer {layer}, head {head}",
        allowed="finite attention weights",
        todo="check the model's weights, or try another dtype",
    )
