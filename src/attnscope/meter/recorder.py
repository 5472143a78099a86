"""What the meter notes down while a model runs: one recorder for one forward.

The recorder is handed every attention call's queries, keys and values. It returns the attention output the model
goes on with, keeps what was received where the layer is wanted, and ends the forward after the last wanted layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from attnscope.meter.kernel import attend
from attnscope.meter.visibility import Plan, causal_plan, mask_plan, open_plan, rows_per_block, uniform_gaze


class EnoughError(Exception):
    """Raised inside the forward once the last wanted layer has been read."""


@dataclass(frozen=True)
class Call:
    """One attention call: query (B, H, Sq, D), key (B, Hkv, Sk, D), value (B, Hkv, Sk, Dv)."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None  # True where a query sees a key, or numbers added to the scores
    causal: bool
    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None
    bias: Tensor | None = None
    window: int | None = None


@dataclass
class Recorder:
    """weights (B, m, Sq): the query groups; rows that no group uses are pads or not asked for."""

    weights: Tensor
    layers: Collection[int]
    entropy: bool = False
    stop: bool = True
    lengths: list[int] | None = None
    """For causal models padded on the right and given no mask: how many rows of each prompt are real."""
    real: Tensor | None = None
    """(B, keys): False at pads, where the model was given a mask."""
    block: int | None = None
    received: dict[int, Tensor] = field(default_factory=dict)
    entropies: dict[int, Tensor] = field(default_factory=dict)
    calls: Counter[int] = field(default_factory=Counter)
    masks: dict[int, str] = field(default_factory=dict)
    uniform: dict[int, Tensor] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], tuple[list[Plan], Tensor | None]] = field(default_factory=dict)
    _uniforms: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        used = (self.weights != 0).any(1)  # (B, Sq)
        self._rows = used.any(0).nonzero()[:, 0]
        self._few = len(self._rows) * 8 <= used.shape[1]
        self._last = max(self.layers, default=-1)

    def attention(self, layer: int, call: Call) -> Tensor:
        """The attention output (B, Sq, H, Dv) of this call."""
        self.calls[layer] += 1
        if layer not in self.layers:
            return self._plain(call)
        ends = self.stop and layer == self._last and set(self.layers) <= {*self.received, layer}
        native = call.softcap is None and call.sinks is None
        if self._few and (ends or native):
            output = None if ends else self._plain(call)
            self._read(layer, call, self._rows, value=None)
        else:
            everything = torch.arange(call.query.shape[2], device=call.query.device)
            output = self._read(layer, call, everything, value=None if ends else call.value)
        if ends:
            raise EnoughError
        assert output is not None  # noqa: S101  (only a last layer goes without)
        return output

    def _read(self, layer: int, call: Call, rows: Tensor, value: Tensor | None) -> Tensor | None:
        plans, bias = self._planned(call, rows)
        whole = len(rows) == call.query.shape[2]
        weights = (self.weights if whole else self.weights[:, :, rows]).to(call.query.device)
        gaze = attend(
            call.query if whole else call.query[:, :, rows],
            call.key,
            value,
            plans=plans,
            weights=weights,
            scale=call.scale,
            softcap=call.softcap,
            sinks=call.sinks,
            bias=bias if bias is None or whole else bias[:, :, rows],
            entropy=self.entropy,
        )
        self.received[layer] = gaze.received
        if gaze.entropy is not None:
            self.entropies[layer] = gaze.entropy
        self.masks[layer] = _mask_kind(call, bias)
        self.uniform[layer] = self._uniform(plans, weights, call.key.shape[2])
        return gaze.output

    def _plain(self, call: Call) -> Tensor:
        """The output alone."""
        if call.softcap is None and call.sinks is None and call.bias is None:
            return _sdpa(call)
        plans, bias = self._planned(call, torch.arange(call.query.shape[2], device=call.query.device))
        gaze = attend(
            call.query,
            call.key,
            call.value,
            plans=plans,
            weights=call.query.new_zeros(len(call.query), 0, call.query.shape[2]),
            scale=call.scale,
            softcap=call.softcap,
            sinks=call.sinks,
            bias=bias,
        )
        assert gaze.output is not None  # noqa: S101
        return gaze.output

    def _uniform(self, plans: list[Plan], weights: Tensor, keys: int) -> Tensor:
        """(B, heads or 1, m, keys), made once for the layers that share their plans."""
        if id(plans) not in self._uniforms:
            each = [
                uniform_gaze(plan, weights[prompt, :, : plan.visible.shape[1]], keys)
                for prompt, plan in enumerate(plans)
            ]
            self._uniforms[id(plans)] = torch.stack(each)
        return self._uniforms[id(plans)]

    def _planned(self, call: Call, rows: Tensor) -> tuple[list[Plan], Tensor | None]:
        """A plan for each prompt of the batch, and the bias that is left; made once for each mask and set of rows."""
        mask, keys = call.mask, call.key.shape[2]
        shape = None if mask is None else (mask.data_ptr(), mask.shape, mask.stride(), mask.dtype)
        of_bias = None if call.bias is None else call.bias.data_ptr()
        key = (
            shape,
            of_bias,
            call.causal,
            keys,
            len(rows),
            call.query.shape[1] // call.key.shape[1],
            call.query.device,
        )
        if key not in self._plans:
            self._plans[key] = self._plan(call, rows, keys)
        return self._plans[key]

    def _plan(self, call: Call, rows: Tensor, keys: int) -> tuple[list[Plan], Tensor | None]:
        batch, heads, queries, _ = call.query.shape
        block = self.block or rows_per_block(heads // call.key.shape[1] * keys)
        dtype = torch.promote_types(call.query.dtype, torch.float32)
        seen, bias = _split(call.mask)
        if call.bias is not None:
            bias = call.bias if bias is None else bias + call.bias
        if seen is not None:
            seen = seen.expand(batch, -1, -1, -1)
            return [mask_plan(each[..., :keys], rows, dtype=dtype, block=block) for each in seen], bias
        if not call.causal:
            return [open_plan(rows, keys, block=block)] * batch, bias
        if self.lengths is None or len(rows) < queries:
            return [causal_plan(rows, keys, dtype=dtype, block=block)] * batch, bias
        return [causal_plan(rows[:length], keys, dtype=dtype, block=block) for length in self.lengths], bias


def _split(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """A mask as (which keys are seen, what is added to their scores)."""
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    seen = ~hidden
    if bool((mask[seen] == 0).all()):
        return seen, None
    return seen, mask.masked_fill(hidden, 0)


def _sdpa(call: Call) -> Tensor:
    """What torch's own attention gives, called as transformers calls it."""
    grouped = call.query.shape[1] != call.key.shape[1]
    key, value = call.key, call.value
    native = call.mask is None and key.shape[-1] == value.shape[-1]
    if grouped and not native:
        repeats = call.query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    output = F.scaled_dot_product_attention(
        call.query,
        key,
        value,
        attn_mask=call.mask,
        scale=call.scale,
        is_causal=call.causal and call.mask is None,
        enable_gqa=grouped and native,
    )
    return output.transpose(1, 2).contiguous()


def _mask_kind(call: Call, bias: Tensor | None) -> str:
    """Words for the evidence: what limited this layer's gaze."""
    kinds = ["mask" if call.mask is not None else "causal" if call.causal else "open"]
    if call.window is not None:
        kinds.append(f"window {call.window}")
    if call.softcap is not None:
        kinds.append(f"softcap {call.softcap:g}")
    if call.sinks is not None:
        kinds.append("sinks")
    if bias is not None:
        kinds.append("bias")
    return ", ".join(kinds)
