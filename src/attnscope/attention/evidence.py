"""What is compared before a model is recorded: the kinds of forward that somebody else's code may run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from transformers import PreTrainedModel

from attnscope.attention.decode import prove_decode
from attnscope.attention.probe import Probe
from attnscope.attention.proof import Path, Proof, prove
from attnscope.attention.view import HIDDEN
from attnscope.errors import AttnscopeError, StoppingError
from attnscope.measures import Measure

PROBE_TOKENS = 48


@dataclass(frozen=True)
class Evidence:
    """What was compared before anything is recorded."""

    proofs: list[Proof]
    pads: AttnscopeError | None
    """Why batches with pads can't be recorded; None if they can."""
    pad_rows: AttnscopeError | None
    """Why the rows of pads would not be as they are outside, which matters unless the forward only fills a cache."""

    def refuse_pads(self, *, cached: bool) -> None:
        """For a forward with pads. cached: it fills a cache, as in `generate`; nobody looks at its pads then."""
        refusal = self.pads or (None if cached else self.pad_rows)
        if refusal is not None:
            raise refusal

    def unproven(self, paths: frozenset[Path]) -> frozenset[Path]:
        """The paths that were not compared. Where an edit hides keys, it is the path without it that was compared."""
        taken = frozenset((layer, backend, kind.removesuffix(HIDDEN)) for layer, backend, kind in paths)
        return taken - frozenset(path for proof in self.proofs for path in proof.paths)


@dataclass(frozen=True)
class Probes:
    """The prompts that a model is compared on: alone and beside pads, with few rows read and with all of them."""

    first: Probe
    """What is asked of all of them, and which rows are read first."""
    vocabulary: int

    def tokens(self, count: int) -> list[int]:
        return [(17 + 7919 * place) % self.vocabulary for place in range(count)]

    def alone(self, count: int) -> list[Probe]:
        prompts, few = [self.tokens(count)], self.first.few
        ways = product((few, not few), (False, True))  # its own attention output is kept under gradients, for example
        return [replace(self.first, prompts=prompts, few=way, observe=observe) for way, observe in ways]

    def beside_pads(self, count: int) -> list[Probe]:
        prompts = [self.tokens(max(1, 2 * count // 5)), self.tokens(count)]
        return [replace(each, prompts=prompts, left=True, masked=True) for each in self.alone(count)]


def compared_before(
    model: PreTrainedModel,
    name: str,
    queries: Sequence[str],
    layers: Sequence[int],
    measures: tuple[Measure, ...],
    context: int | None,
) -> Evidence:
    """One prompt alone, two of different lengths with a mask, and a step with the cache: as forwards come.

    context: how many tokens the model takes, if there is a limit.
    """
    count = min(PROBE_TOKENS, context or PROBE_TOKENS)
    asked = Probe([], layers, "all" not in queries, measures, as_is=True)
    vocabulary = len(next(model.get_input_embeddings().parameters()))
    probes = Probes(asked, vocabulary)
    alone = prove(model, name, probes.alone(count)[0])
    probes = replace(probes, first=replace(asked, limit=alone.limit))
    proofs = [alone, *(prove(model, name, probe) for probe in probes.alone(count)[1:])]
    for proof in proofs:
        if proof.changed is not None:
            raise proof.changed
    if alone.causal is not False:
        decoded = prove_decode(model, name, probes.tokens(count), layers, alone)
        proofs += [] if decoded is None else [decoded]
    for shorter in _unbound(model, alone, count):
        proofs += _compared(model, name, probes, alone, shorter)
    try:
        padded = [prove(model, name, probe) for probe in probes.beside_pads(count)]
    except StoppingError:
        raise
    except AttnscopeError as refusal:
        return Evidence(proofs, refusal, None)
    changed = next((proof.changed for proof in padded if proof.changed is not None), None)
    return Evidence([*proofs, *padded], None, changed)


def _unbound(model: PreTrainedModel, alone: Proof, count: int) -> list[int]:
    """Lengths of prompts in which no window or chunk binds that does in one of `count` tokens: other paths."""
    chunk = getattr(model.config.get_text_config(), "attention_chunk_size", None)
    bounds = {bound for bound in (*alone.windows, chunk) if bound is not None and 1 < bound <= count}
    return sorted({1, 2, *(bound - 1 for bound in bounds)}) if bounds else []


def _compared(model: PreTrainedModel, name: str, probes: Probes, alone: Proof, count: int) -> list[Proof]:
    """The proofs that prompts of so many tokens give; without those in which the model is not read exactly."""
    wanted = [*probes.alone(count), *(probes.beside_pads(count) if count > 1 else [])]
    makers: list[Callable[[], Proof | None]] = [partial(prove, model, name, probe) for probe in wanted]
    if alone.causal is not False and count > 1:
        makers.append(partial(prove_decode, model, name, probes.tokens(count), probes.first.layers, alone))
    return [proof for proof in map(_if_exact, makers) if proof is not None and proof.changed is None]


def _if_exact(make: Callable[[], Proof | None]) -> Proof | None:
    """A proof; None where the model is not read exactly: then its path stays without one."""
    try:
        return make()
    except StoppingError:
        raise
    except AttnscopeError:
        return None
