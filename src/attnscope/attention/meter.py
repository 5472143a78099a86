"""The meter: token ids in, what every key received out, on a model that has first been shown to be read exactly.

Before its first reading a meter runs a short prompt both ways, its own and transformers' eager attention, and compares
them. What doesn't agree is refused; a model outside the attention interface is read through its own eager attention,
one layer at a time; a model with neither is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.forward import Measurement, input_device, measure_forward
from attnscope.attention.groups import Rows, row_weights
from attnscope.attention.interface import length_matters
from attnscope.attention.parity import Parity, prove
from attnscope.attention.patterns import pairs_of
from attnscope.errors import AttnscopeError, NoRoomError


@dataclass(frozen=True)
class Found:
    """One prompt's numbers. `m` is the number of query groups."""

    received: NDArray[np.float32]  # (layers, heads, m, keys)
    uniform: NDArray[np.float32]  # (layers, heads or 1, m, keys): of a gaze at all visible keys alike
    seen: NDArray[np.float32]  # the same shape: the share of each group's queries that see the key
    entropy: NDArray[np.float32] | None  # (layers, heads, m), nats
    masks: dict[int, str]
    patterns: NDArray[np.float32] | None = None  # (layers, heads, patterns, m, 3), see Recorder


@dataclass(frozen=True)
class _Asked:
    """What is read of a batch."""

    queries: list[str]
    layers: list[int]
    entropy: bool = False
    patterns: bool = False


class Meter:
    """Reads one model. `unreadable`: layers without softmax attention, with the reason."""

    def __init__(self, model: PreTrainedModel, name: str, layers: int, unreadable: Mapping[int, str]) -> None:
        self.model = model
        self.name = name
        self.layers = layers
        self.unreadable = dict(unreadable)
        self.readable = [layer for layer in range(layers) if layer not in self.unreadable]
        self.vocabulary = len(next(model.get_input_embeddings().parameters()))
        self._parity: Parity | None = None
        self._mixes: bool | None = None
        self._probe: list[int] = []

    def proven(self, probe: Sequence[int]) -> Parity:
        """The evidence that this model is read exactly, from a short prompt's ids; made once."""
        if self._parity is None:
            self._probe = list(probe)
            self._parity = prove(self.model, self.name, self.readable, probe)
        return self._parity

    def compared(self, ids: Sequence[int]) -> Parity:
        """The same on other ids, each time anew."""
        return prove(self.model, self.name, self.readable, ids)

    def read(
        self,
        prompts: Sequence[Sequence[int]],
        queries: Sequence[str],
        layers: Sequence[int],
        *,
        parity: Parity,
        rows: Sequence[Mapping[str, Rows]] | None = None,
        entropy: bool = False,
        patterns: bool = False,
    ) -> list[Found]:
        """A batch of prompts (token ids) -> one Found a prompt, what it would get alone."""
        asked = _Asked(list(queries), list(layers), entropy, patterns)

        def batch(chosen: Sequence[int]) -> list[Found]:
            own = None if rows is None else [rows[number] for number in chosen]
            return self._batch([prompts[number] for number in chosen], asked, parity, own)

        everyone = range(len(prompts))
        if len({len(prompt) for prompt in prompts}) == 1 or self._may_mix(parity):
            return batch(everyone)
        return [batch([number])[0] for number in everyone]

    def _may_mix(self, parity: Parity) -> bool:
        """Whether prompts of mixed lengths can share a forward; tried out once, on a short prompt beside a longer one.

        Some models look at pads outside attention (convolutions, neighbouring embeddings), and positions that are
        scaled by the length of the input are scaled by the longest prompt's.
        """
        if self._mixes is None:
            short, long = self._probe[:3], self._probe
            asked = _Asked(["last", "all"], self.readable)
            together = self._batch([short, long], asked, parity, None)[0]
            alone = self._batch([short], asked, parity, None)[0]
            fine = self.model.dtype in (torch.float32, torch.float64)
            same = np.abs(together.received - alone.received).max() <= (1e-4 if fine else 2e-2)
            self._mixes = bool(same) and not length_matters(self.model.config)
        return self._mixes

    def _batch(
        self,
        prompts: Sequence[Sequence[int]],
        asked: _Asked,
        parity: Parity,
        rows: Sequence[Mapping[str, Rows]] | None,
    ) -> list[Found]:
        lengths, device = [len(prompt) for prompt in prompts], input_device(self.model)
        ids = torch.zeros(len(prompts), max(lengths), dtype=torch.int64)
        real = torch.zeros(ids.shape, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.as_tensor(list(prompt))
            real[row, : len(prompt)] = True
        inputs: dict[str, Any] = {"input_ids": ids.to(device)}
        padded = len(set(lengths)) > 1
        if padded and not parity.causal:
            inputs["attention_mask"] = real.long().to(device)
        # pads come last, so under a causal mask no real query sees one and no mask is needed
        measured = self._forward(
            inputs,
            row_weights(asked.queries, real, rows),
            asked.layers,
            entropy=asked.entropy,
            lengths=lengths if padded and parity.causal else None,
            eager=parity.eager,
            pairs=[pairs_of(prompt) for prompt in prompts] if asked.patterns else None,
        )
        return [_found(measured, asked.layers, prompt, length) for prompt, length in enumerate(lengths)]

    def _forward(self, inputs: dict[str, Any], weights: Tensor, layers: Sequence[int], **options: Any) -> Measurement:
        try:
            measured = measure_forward(self.model, inputs, weights, layers, **options)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
                raise
            raise NoRoomError(
                "not enough memory for this forward",
                where=f"{self.name}, {tuple(inputs['input_ids'].shape)} tokens",
                allowed="what fits beside the model",
                todo="use a shorter prompt, fewer prompts at once or a smaller dtype",
            ) from error
        wrong = [layer for layer in layers if measured.calls[layer] != 1 or layer not in measured.received]
        if wrong:
            raise AttnscopeError(
                f"{self.name} can't be read exactly",
                where=f"layers {wrong}",
                allowed="one attention call a layer and forward",
                todo="measure other layers, or another model",
            )
        return measured


def _found(measured: Measurement, layers: Sequence[int], prompt: int, length: int) -> Found:
    def stacked(parts: Mapping[int, Tensor], *, keys: bool) -> NDArray[np.float32]:
        each = [parts[layer][prompt].float().cpu() for layer in layers]
        each = [part[..., :length].clone() if keys else part for part in each]
        most = max(len(part) for part in each)  # some masks differ by head, others don't
        return torch.stack([part.expand(most, *part.shape[1:]) for part in each]).numpy()

    return Found(
        received=stacked(measured.received, keys=True),
        uniform=stacked(measured.uniform, keys=True),
        seen=stacked(measured.seen, keys=True),
        entropy=stacked(measured.entropy, keys=False) if measured.entropy else None,
        masks={layer: measured.masks[layer] for layer in layers},
        patterns=stacked(measured.patterns, keys=False) if measured.patterns else None,
    )
