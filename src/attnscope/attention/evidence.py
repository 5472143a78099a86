"""What is compared before a model is recorded: the kinds of forward that somebody else's code may run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from transformers import PreTrainedModel

from attnscope.attention.decode import prove_decode
from attnscope.attention.probe import Probe
from attnscope.attention.proof import Proof, prove
from attnscope.errors import AttnscopeError, PluginError
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


def compared_before(
    model: PreTrainedModel, name: str, queries: Sequence[str], layers: Sequence[int], measures: tuple[Measure, ...]
) -> Evidence:
    """One prompt alone, two of different lengths with a mask, and a step with the cache: as forwards come."""
    vocabulary = len(next(model.get_input_embeddings().parameters()))
    tokens = [(17 + 7919 * place) % vocabulary for place in range(PROBE_TOKENS)]
    few = "all" not in queries
    first = Probe([tokens], layers, few, measures, as_is=True)
    alone = prove(model, name, first)
    known = replace(first, limit=alone.limit)
    proofs = [alone, prove(model, name, replace(known, few=not few))]
    trains = torch.is_grad_enabled() and any(each.requires_grad for each in model.parameters())
    if trains:
        proofs += [prove(model, name, replace(known, few=way, observe=True)) for way in (few, not few)]
    for proof in proofs:
        if proof.changed is not None:
            raise proof.changed
    if alone.causal is not False:
        decoded = prove_decode(model, name, tokens, layers, alone)
        proofs += [] if decoded is None else [decoded]
    padded = replace(known, prompts=[tokens[:20], tokens], left=True, masked=True)
    beside_pads = []
    try:
        for way, observe in product((few, not few), (False, True) if trains else (False,)):
            beside_pads.append(prove(model, name, replace(padded, few=way, observe=observe)))
    except PluginError:
        raise
    except AttnscopeError as refusal:
        return Evidence(proofs, refusal, None)
    changed = next((proof.changed for proof in beside_pads if proof.changed is not None), None)
    return Evidence([*proofs, *beside_pads], None, changed)
