"""What a proof reads: a short prompt or two, along one of the paths that a reading may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.ask import FEW
from attnscope.attention.backends import BACKENDS
from attnscope.attention.device import input_device
from attnscope.attention.forward import may_stop
from attnscope.attention.groups import row_weights
from attnscope.attention.recorder import Wanted
from attnscope.measures import Measure
from attnscope.measures.received import RECEIVED

ROWS = 8  # single rows that are compared


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
    as_is: bool = False
    """Whether it keeps its own attention implementation, as where somebody else runs it."""
    limit: float | None = None
    """What to go by instead of eager's rounding, which float64 then need not show: an earlier proof's limit."""

    @property
    def tokens(self) -> int:
        return max(map(len, self.prompts))


def asked(model: PreTrainedModel, probe: Probe) -> tuple[dict[str, Any], Wanted, list[str]]:
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
        places=places_of(real),
        stop=may_stop(model) and not probe.as_is and BACKENDS.members.keys() == BACKENDS.built_in.keys(),
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


def places_of(real: Tensor) -> list[list[int]] | None:
    """Of flags (B, tokens): where each prompt's tokens stand; None if there are no pads."""
    return None if bool(real.all()) else [each.nonzero().flatten().tolist() for each in real]


def padded(prompts: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids (B, longest) with zeros beside the shorter prompts, and which of them are real."""
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.int64)
    real = torch.zeros(ids.shape, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        place = slice(ids.shape[1] - len(prompt), None) if left else slice(len(prompt))
        ids[row, place] = torch.as_tensor(list(prompt))
        real[row, place] = True
    return ids, real
