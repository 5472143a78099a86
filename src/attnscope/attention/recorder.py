"""What is noted down while a model runs: one recorder for one forward.

The recorder is handed every attention call. It returns the attention output that the model goes on with, keeps what was
measured where the layer is wanted, and ends the forward after the last wanted layer.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from attnscope.attention.ask import FEW, Ask, PairSet, pair_set, token_ids
from attnscope.attention.backends import attend, choose
from attnscope.attention.backends.reference import attention_matrix, attention_output
from attnscope.attention.backends.rows import sdpa
from attnscope.attention.call import AnyCall, Call
from attnscope.attention.seam import Edits, NoEdits
from attnscope.attention.uniform import view_numbers
from attnscope.attention.view import View, Views, look
from attnscope.errors import AttnscopeError, Parameter
from attnscope.measures import Measure, TokenIds
from attnscope.measures.received import RECEIVED

Own = Callable[[], Tensor]
"""The output (B, Sq, H, Dv) as the model itself would compute it."""


class EnoughError(Exception):
    """Raised inside the forward once the last wanted layer has been read."""


@dataclass(frozen=True)
class Wanted:
    """What is read of a forward. weights (B, m, Sq): the query groups; rows that no group uses are not read."""

    weights: Tensor
    layers: frozenset[int]
    measures: tuple[Measure, ...] = (RECEIVED,)
    ids: Sequence[Sequence[int]] | None = None
    """The token ids of each prompt, from its first key on: for measures that look at tokens."""
    places: Sequence[Sequence[int]] | None = None
    """Which of the ids are tokens, where pads are among them."""
    edits: Edits = field(default_factory=NoEdits)
    stop: bool = True
    """End the forward after the last wanted layer."""
    observe: bool = False
    """Hand the model its own output wherever it has one, so that the forward is what it would be without us."""
    real: Tensor | None = None
    """(B, Sk): False at pads, where the model was given a mask of them."""
    lengths: list[int] | None = None
    """For causal models padded on the right and given no mask: how many rows of each prompt are real."""
    block: int | None = None


@dataclass(frozen=True)
class LayerResult:
    """What was measured in one layer."""

    values: dict[str, Tensor]
    """By measure: (B, H, m) or (B, H, m, Sk)."""
    view: dict[str, Tensor]
    """What depends on the view alone; see `uniform.view_numbers`."""
    kind: str
    """What limited the view, in words."""
    backend: str
    window: int | None = None


def refuse_uneven_heads(name: str, results: Sequence[LayerResult]) -> None:
    """Numbers of several layers make one array: they need as many heads."""
    counts = sorted({each.values[RECEIVED.name].shape[1] for each in results})
    if len(counts) > 1:
        raise AttnscopeError(
            f"{name}'s layers have {' and '.join(map(str, counts))} heads",
            where=Parameter("layers"),
            allowed="layers with the same number of heads",
            todo="measure them one by one",
        )


class Recorder:
    """Reads one forward."""

    exclusive = True

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.thread: int | None = threading.get_ident()
        self.layers, self.real, self.edits = wanted.layers, wanted.real, wanted.edits
        self.results: dict[int, LayerResult] = {}
        self.calls: Counter[int] = Counter()
        used = (wanted.weights != 0).any(1)  # (B, Sq)
        self._rows = used.any(0).nonzero()[:, 0]
        self._every = torch.arange(used.shape[1], device=used.device)
        self._last = max(wanted.layers, default=-1)
        self._views = Views(lengths=wanted.lengths, block=wanted.block)
        self._pairs: dict[int, dict[str, list[PairSet]]] = {}
        self._ids: dict[tuple[int, torch.device], list[TokenIds]] = {}
        self._store: Tensor | None = None

    def written(self, layer: int, queries: int) -> int | None:
        """How many of a layer's keys are written; None for all."""
        return None

    def attention(self, layer: int, call: AnyCall, own: Own | None = None) -> Tensor | None:
        """The attention output (B, Sq, H, Dv) of this call; None for a model that computes it itself."""
        self.calls[layer] += 1
        output = self._output(layer, call, own)
        return None if output is None else self.wanted.edits.output(layer, output, call)

    def _output(self, layer: int, call: AnyCall, own: Own | None) -> Tensor | None:
        wanted = self.wanted
        touched = wanted.edits.touch_weights(layer)
        if layer not in wanted.layers and not touched:
            is_own = not isinstance(call, Call) or call.native or call.own_output
            return plain_output(call, self._views, own if is_own else None)
        ends = wanted.stop and layer == self._last and wanted.layers <= {*self.results, layer}
        keeps_own = wanted.observe or (isinstance(call, Call) and call.own_output)
        own_output = own if keeps_own and not touched else None
        hidden = wanted.edits.hidden(layer, call)
        edit = (
            wanted.edits.weights(layer, call) if isinstance(call, Call) else None
        )  # other weights are changed already
        output = not ends and own_output is None and isinstance(call, Call)
        ask, view = self._ask(call, hidden, output=output, edited=touched)
        if output and view.blind and not touched:  # what a pad's row becomes is up to the model
            own_output, ask = own, replace(ask, output=False)
        if edit is not None:
            ask = replace(ask, edit=edit)
        backend = choose(call, view, ask)
        if layer in wanted.layers or hidden is not None:
            self._refuse_blind_rows(layer, view, ask, every=hidden is not None)
        result = attend(backend, call, view, ask)
        if layer in wanted.layers:
            values = {name: self._keep(layer, name, each) for name, each in result.values.items()}
            numbers = view_numbers(view, ask, call.keys)
            window = call.window if isinstance(call, Call) else None
            self.results[layer] = LayerResult(values, dict(numbers), view.kind, backend.name, window)
        if ends:
            raise EnoughError
        return result.output if own_output is None else own_output()

    def _ask(self, call: AnyCall, hidden: Tensor | None, *, output: bool, edited: bool) -> tuple[Ask, View]:
        """Few rows are read by themselves where torch's attention makes the output; otherwise all of them are."""
        native = isinstance(call, Call) and call.native and not edited
        few = len(self._rows) * FEW <= call.queries and (native or not output) and isinstance(call, Call)
        rows = (self._rows if few else self._every).to(call.device)
        weights = self.wanted.weights.to(call.device)
        view = self._views.of(call, rows, hidden)
        ask = Ask(
            weights=weights[:, :, rows] if few else weights,
            rows=rows,
            output=output,
            measures=self.wanted.measures,
            pairs=self._pair_sets(view, len(rows)),
            ids=self._token_ids(call),
        )
        return ask, view

    def _pair_sets(self, view: View, rows: int) -> dict[str, list[PairSet]]:
        paired = [each for each in self.wanted.measures if each.pairs is not None]
        if not paired:
            return {}
        ids = self.wanted.ids
        if ids is None:
            raise _without_ids(paired[0])
        if rows not in self._pairs:
            device = view.positions.device
            places: Sequence[Sequence[int] | None] = self.wanted.places or [None] * len(ids)
            self._pairs[rows] = {
                each.name: [
                    pair_set(each, prompt, view.positions, tokens).to(device)
                    for prompt, tokens in zip(ids, places, strict=True)
                ]
                for each in paired
            }
        return self._pairs[rows]

    def _token_ids(self, call: AnyCall) -> list[TokenIds]:
        """Of each prompt, for measures that need them.

        With a cache they are not known, but neither is the token after the newest one.
        """
        needing = [each for each in self.wanted.measures if each.needs_ids or each.needs_next]
        if not needing:
            return []
        ids: Sequence[Sequence[int] | None] | None = self.wanted.ids
        if ids is None:
            asking = [each for each in needing if not each.needs_next or call.queries > 1]
            if asking:
                raise _without_ids(asking[0])
            ids = [None] * call.batch
        key = call.keys, call.device
        if key not in self._ids:
            places: Sequence[Sequence[int] | None] = self.wanted.places or [None] * len(ids)
            self._ids[key] = [
                token_ids(prompt, max(call.keys, len(prompt or ())), tokens, call.device)
                for prompt, tokens in zip(ids, places, strict=True)
            ]
        return self._ids[key]

    def _refuse_blind_rows(self, layer: int, view: View, ask: Ask, *, every: bool) -> None:
        """A query that sees no key has no attention; models differ in what they make of it.

        every: also queries that nothing is read of, but for pads.
        """
        if view.numbers:  # another layer has shown it already
            return
        for prompt, plan in enumerate(view.plans):
            count = plan.visible.shape[1]
            wanted = ask.weights[prompt, :, :count].abs().sum(0) > 0  # (rows,)
            if every and self.wanted.real is None:
                wanted = wanted | True
            beyond = ask.weights[prompt, :, count:].abs().sum()
            blind = ((plan.visible == 0) & wanted).any(0).nonzero()
            if len(blind) or float(beyond) > 0:
                where = int(view.positions[blind[0, 0]]) if len(blind) else int(view.positions[-1])
                raise AttnscopeError(
                    f"the query at position {where} sees no key in layer {layer}",
                    where=f"prompt {prompt} of the batch",
                    allowed="queries that see at least one key",
                    todo="hide fewer keys" if every else "leave this query out, or check the attention mask",
                )

    def _keep(self, layer: int, name: str, values: Tensor) -> Tensor:
        """A copy in one store for all layers: small tensors that stay, between large ones that go, tear up the heap."""
        if name != RECEIVED.name:
            return values
        if self._store is None:
            self._store = values.new_empty(len(self.wanted.layers), *values.shape)
        place = self._store[sorted(self.wanted.layers).index(layer)]
        if place.shape != values.shape or place.device != values.device:  # heads or devices differ by layer
            return values
        return place.copy_(values)


def _without_ids(measure: Measure) -> AttnscopeError:
    return AttnscopeError(
        f"measure '{measure.name}' needs the token ids of the whole text, which this forward was not given",
        where=Parameter("measures"),
        allowed="a forward with input_ids and no cache",
        todo="leave the measure out, or run the whole text in one forward",
    )


def plain_output(call: AnyCall, views: Views | None = None, own: Own | None = None) -> Tensor | None:
    """The attention output (B, Sq, H, Dv) alone; None for a model that computes it itself."""
    if not isinstance(call, Call):
        return None
    if own is not None:
        return own()
    if call.native:
        return sdpa(call)
    rows = torch.arange(call.queries, device=call.device)
    view = look(call, rows) if views is None else views.of(call, rows)
    if torch.is_grad_enabled() and call.query.requires_grad:
        return attention_output(call, attention_matrix(call, view))
    ask = Ask(call.query.new_zeros(call.batch, 0, call.queries), rows, measures=())
    return attend(choose(call, view, ask), call, view, ask).output
