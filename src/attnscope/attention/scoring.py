"""What a model makes of a given answer: as it is, and with its attention changed in each of many ways.

The text is run once as it is. A variant, that is a list of edits, begins at the first layer it changes, from what the
forward before gave to that layer; variants that begin at the same layer share a forward. Where a model can't begin in
the middle, each variant is a forward of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from attnscope.attention.device import input_device
from attnscope.attention.forward import measure_forward
from attnscope.attention.meter import SHORT, Meter, Request
from attnscope.attention.recorder import Wanted
from attnscope.attention.room import room_for
from attnscope.attention.seam import Edits, NoEdits, PlacedEdits
from attnscope.attention.stack import Passed, keeping, resumed, stack_of
from attnscope.edits.attention import AttentionEdit
from attnscope.errors import AttnscopeError
from attnscope.records import Scores

TOGETHER = 4096  # tokens of variants that share a forward
SAME = 1e-6  # of the largest logit: how far a forward that begins in the middle may be from a whole one
KEEP = "logits_to_keep"  # what transformers calls the number of last rows that the head is applied to

Variant = Sequence[AttentionEdit]
"""Edits with positions in one text; none of them for the text as it is."""


class Scorer:
    """Scores answers of one model."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.model: Any = meter.model
        self.name = meter.name
        self._stack = stack_of(meter.model, meter.layers)

    def scores(self, ids: Sequence[int], start: int, variants: Sequence[Variant]) -> tuple[Scores, list[Scores]]:
        """Of the tokens from position `start` on: as the text is, and under each variant."""
        placed = [PlacedEdits([variant], [len(ids)]) for variant in variants]
        for each in placed:
            self._meter.refuse_edits(each)
        self._refuse_if_without_head()
        firsts = [self._first(each) for each in placed]
        begin = {first for first in firsts if first is not None} if self.can_resume else set()
        logits, passed = self._run(ids, start, NoEdits(), 1, begin=begin)
        plain = self._log_softmax(logits[0])
        base = self._scored(plain, plain, ids, start)
        found: dict[int, Scores] = {place: base for place, first in enumerate(firsts) if first is None}
        for group in self._groups(firsts, len(ids)):
            first = firsts[group[0]]
            edits = PlacedEdits([variants[place] for place in group], [len(ids)] * len(group))
            logits, _ = self._run(ids, start, edits, len(group), first=first or 0, passed=passed)
            for place, each in zip(group, logits, strict=True):
                found[place] = self._scored(self._log_softmax(each), plain, ids, start)
        return base, [found[place] for place in range(len(variants))]

    def _first(self, edits: Edits) -> int | None:
        """The first layer that is changed."""
        return next((layer for layer in self._meter.readable if edits.touch(layer)), None)

    def _groups(self, firsts: Sequence[int | None], length: int) -> list[list[int]]:
        """The variants that share a forward: those that begin at the same layer, as many as there is room for."""
        most = max(1, TOGETHER // length)
        groups = []
        for first in sorted({each for each in firsts if each is not None}):
            places = [place for place, each in enumerate(firsts) if each == first]
            groups += [places[start : start + most] for start in range(0, len(places), most)]
        return groups

    def _run(
        self,
        ids: Sequence[int],
        start: int,
        edits: Edits,
        copies: int,
        *,
        first: int = 0,
        passed: Passed | None = None,
        begin: Collection[int] = (),
    ) -> tuple[Tensor, Passed]:
        """(copies, rows that predict the answer, vocabulary), and what goes into the layers of `begin`.

        The forward begins at layer `first`, if what goes into it is known.
        """
        rows = len(ids) - start
        given = torch.as_tensor([list(ids)] * copies, device=input_device(self.model))
        inputs: dict[str, Any] = {"input_ids": given, **({KEEP: rows + 1} if self._keeps else {})}
        nothing = torch.zeros(copies, 0, len(ids), device=given.device)
        wanted = Wanted(nothing, frozenset(), edits=edits, stop=False)
        proof = self._meter.proof(Request(["all"], self._meter.readable))
        known = self._stack is not None and passed is not None and first in passed
        begins = resumed(self._stack or [], first, (passed or {})[first], copies) if known else nullcontext()
        where = f"{self.name}, {tuple(given.shape)} tokens"
        with room_for("this forward", where), keeping(self._stack or [], begin) as kept, begins:
            logits = measure_forward(self.model, inputs, wanted, eager=proof.eager, logits=True).logits
        if logits is None or logits.dim() != 3 or logits.shape[1] < rows + 1 or logits.shape[2] <= max(ids):
            raise self._without_head()
        return logits[:, -rows - 1 : -1], kept

    @cached_property
    def _keeps(self) -> bool:
        """Whether the model can apply its head to the last rows only."""
        return KEEP in inspect.signature(type(self.model).forward).parameters

    @cached_property
    def can_resume(self) -> bool:
        """Whether a forward that begins in the middle gives what a whole one gives; tried out on a short text."""
        if self._stack is None or len(self._stack) < 2:
            return False
        ids = self._meter.probe(SHORT)
        places = sorted({1, len(self._stack) // 2, len(self._stack) - 1})
        try:
            whole, _ = self._run(ids, 1, NoEdits(), 2)
            _, passed = self._run(ids, 1, NoEdits(), 1, begin=places)
            parts = [self._run(ids, 1, NoEdits(), 2, first=place, passed=passed)[0] for place in places]
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
            return False
        limit = SAME * float(whole.abs().max())
        return all(bool((part - whole).abs().max() <= limit) for part in parts)

    def _log_softmax(self, logits: Tensor) -> Tensor:
        """(rows, vocabulary), in float64."""
        return logits.double().log_softmax(-1)

    def _scored(self, rows: Tensor, plain: Tensor, ids: Sequence[int], start: int) -> Scores:
        answer = torch.as_tensor(list(ids[start:]), device=rows.device)
        chosen = rows.gather(-1, answer[:, None])[:, 0]
        apart = torch.where(plain > -torch.inf, plain.exp() * (plain - rows), plain.new_zeros(())).sum(-1)
        if not bool(chosen.isfinite().all()) or not bool(apart.isfinite().all()):
            raise AttnscopeError(
                f"{self.name} computes numbers that are not finite",
                where="logits",
                allowed="finite logits",
                todo="check the model's weights and the edits",
            )
        kl = apart.clamp(min=0.0)  # rounding may leave a hair less
        return Scores(chosen.cpu().numpy(), rows.argmax(-1).cpu().numpy(), kl.cpu().numpy())

    def _refuse_if_without_head(self) -> None:
        if not self._meter.causal or self.model.get_output_embeddings() is None:
            raise self._without_head()

    def _without_head(self) -> AttnscopeError:
        return AttnscopeError(
            f"{self.name} predicts no next token",
            where=type(self.model).__name__,
            allowed="causal models with a language model head",
            todo="load the model with its head",
        )
