"""What the meter notes down while a model runs: one recorder for one forward.

The recorder is handed every attention call's queries, keys and values. It returns the attention output the model
goes on with, keeps what was received where the layer is wanted, and ends the forward after the last wanted layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from attnscope.attention.kernel import attend
from attnscope.attention.patterns import Pairs
from attnscope.attention.visibility import (
    Plan,
    causal_plan,
    mask_plan,
    open_plan,
    rows_per_block,
    seen_share,
    uniform_gaze,
    uniform_patterns,
)

HIDING = -9000.0  # models hide a key by adding minus infinity, the dtype's least number, or -10000


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

    @property
    def native(self) -> bool:
        """Can torch's own attention make the output?"""
        return self.softcap is None and self.sinks is None and self.bias is None

    @property
    def every_row(self) -> Tensor:
        """The numbers of all queries."""
        return torch.arange(self.query.shape[2], device=self.query.device)


@dataclass
class Outlook:
    """What the rows of a call can see; kept for the layers that share a mask, with the mask itself.

    (An address is only a name for a mask while the mask is alive.)
    """

    kept: tuple[Tensor | None, Tensor | None]
    plans: list[Plan]  # one a prompt
    bias: Tensor | None  # (B or 1, H or 1, Sq, Sk): what is added to the scores
    uniform: Tensor | None = None  # (B, heads or 1, m, keys)
    seen: Tensor | None = None  # the same shape
    patterns: Tensor | None = None  # (B, heads or 1, patterns, m, 2), see visibility.uniform_patterns


MOST_OUTLOOKS = 4  # a model has two or three kinds of mask; one with a mask a layer need not keep them all


@dataclass
class Recorder:
    """weights (B, m, Sq): the query groups; rows that no group uses are pads or not asked for."""

    weights: Tensor
    layers: AbstractSet[int]
    entropy: bool = False
    stop: bool = True
    lengths: list[int] | None = None
    """For causal models padded on the right and given no mask: how many rows of each prompt are real."""
    real: Tensor | None = None
    """(B, keys): False at pads, where the model was given a mask."""
    block: int | None = None
    pairs: list[Pairs] | None = None
    """One a prompt, where patterns are asked for."""
    received: dict[int, Tensor] = field(default_factory=dict)
    entropies: dict[int, Tensor] = field(default_factory=dict)
    calls: Counter[int] = field(default_factory=Counter)
    masks: dict[int, str] = field(default_factory=dict)
    uniform: dict[int, Tensor] = field(default_factory=dict)
    seen: dict[int, Tensor] = field(default_factory=dict)
    patterns: dict[int, Tensor] = field(default_factory=dict)
    """(B, heads, patterns, m, 3): attention on each, what a uniform gaze would give, queries that have one."""
    _outlooks: dict[tuple[object, ...], Outlook] = field(default_factory=dict)

    def __post_init__(self) -> None:
        used = (self.weights != 0).any(1)  # (B, Sq)
        self._rows = used.any(0).nonzero()[:, 0]
        self._few = len(self._rows) * 8 <= used.shape[1]
        self._last = max(self.layers, default=-1)
        self._store: Tensor | None = None

    def attention(self, layer: int, call: Call) -> Tensor:
        """The attention output (B, Sq, H, Dv) of this call."""
        self.calls[layer] += 1
        if layer not in self.layers:
            return plain_output(call, self._outlook)
        ends = self.stop and layer == self._last and set(self.layers) <= {*self.received, layer}
        if self._few and (ends or call.native):
            output = None if ends else _sdpa(call)
            self._read(layer, call, self._rows, value=None)
        else:
            output = self._read(layer, call, call.every_row, value=None if ends else call.value)
        if output is None:
            raise EnoughError
        return output

    def _read(self, layer: int, call: Call, rows: Tensor, value: Tensor | None) -> Tensor | None:
        outlook = self._outlook(call, rows)
        whole = len(rows) == call.query.shape[2]
        weights = (self.weights if whole else self.weights[:, :, rows]).to(call.query.device)
        device = call.query.device
        pairs = [(each if whole else each.among(rows)).to(device) for each in self.pairs or ()]
        gaze = attend(
            call.query if whole else call.query[:, :, rows],
            call.key,
            value,
            plans=outlook.plans,
            weights=weights,
            scale=call.scale,
            softcap=call.softcap,
            sinks=call.sinks,
            bias=outlook.bias if outlook.bias is None or whole else outlook.bias[:, :, rows],
            entropy=self.entropy,
            pairs=pairs,
        )
        self.received[layer] = self._keep(layer, gaze.received)
        if gaze.entropy is not None:
            self.entropies[layer] = gaze.entropy
        if outlook.uniform is None or outlook.seen is None:
            outlook.uniform, outlook.seen = (
                torch.stack(
                    [
                        made(plan, weights[prompt, :, : plan.visible.shape[1]], call.key.shape[2])
                        for prompt, plan in enumerate(outlook.plans)
                    ]
                )
                for made in (uniform_gaze, seen_share)
            )
        self.uniform[layer], self.seen[layer] = outlook.uniform, outlook.seen
        if gaze.patterns is not None:
            if outlook.patterns is None:
                by_prompt = [
                    uniform_patterns(plan, pairs[prompt], weights[prompt, :, : plan.visible.shape[1]])
                    for prompt, plan in enumerate(outlook.plans)
                ]
                outlook.patterns = torch.stack(by_prompt)
            expected = outlook.patterns.expand(-1, gaze.patterns.shape[1], -1, -1, -1)
            self.patterns[layer] = torch.cat([gaze.patterns[..., None], expected.to(gaze.patterns)], -1)
        self.masks[layer] = _mask_kind(call, outlook.bias)
        return gaze.output

    def _keep(self, layer: int, received: Tensor) -> Tensor:
        """A copy in one store for all layers: small tensors that stay, between large ones that go, tear up the heap."""
        if self._store is None:
            self._store = received.new_empty(len(self.layers), *received.shape)
        place = self._store[sorted(self.layers).index(layer)]
        if place.shape != received.shape or place.device != received.device:  # heads or devices differ by layer
            return received
        return place.copy_(received)

    def _outlook(self, call: Call, rows: Tensor) -> Outlook:
        shapes = [
            None if each is None else (each.data_ptr(), each.shape, each.stride()) for each in (call.mask, call.bias)
        ]
        of_call = (call.causal, call.query.shape[:2], call.key.shape[1:3], call.query.device, len(rows))
        key = (*shapes, *of_call)
        if key not in self._outlooks:
            while len(self._outlooks) >= MOST_OUTLOOKS:
                del self._outlooks[next(iter(self._outlooks))]
            self._outlooks[key] = look_out(call, rows, lengths=self.lengths, block=self.block)
        return self._outlooks[key]


def plain_output(call: Call, outlook: Callable[[Call, Tensor], Outlook] | None = None) -> Tensor:
    """The attention output (B, Sq, H, Dv) alone."""
    if call.native:
        return _sdpa(call)
    seen = (outlook or look_out)(call, call.every_row)
    nobody = call.query.new_zeros(len(call.query), 0, call.query.shape[2])
    more = {"scale": call.scale, "softcap": call.softcap, "sinks": call.sinks, "bias": seen.bias}
    output = attend(call.query, call.key, call.value, plans=seen.plans, weights=nobody, **more).output  # type: ignore[arg-type]
    assert output is not None  # noqa: S101  (values were given)
    return output


def look_out(call: Call, rows: Tensor, *, lengths: list[int] | None = None, block: int | None = None) -> Outlook:
    """Plan each prompt's rows from the call's mask."""
    batch, heads, queries, _ = call.query.shape
    keys = call.key.shape[2]
    block = block or rows_per_block(heads // call.key.shape[1] * keys)
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    seen, bias = _split(call.mask, queries)
    if call.bias is not None:
        given = call.bias.expand(-1, -1, queries, -1)
        bias = given if bias is None else bias + given
    if seen is not None:
        plans = [mask_plan(each[..., :keys], rows, dtype=dtype, block=block) for each in seen.expand(batch, -1, -1, -1)]
    elif not call.causal:
        plans = [open_plan(rows, keys, block=block)] * batch
    elif lengths is None or len(rows) < queries:
        plans = [causal_plan(rows, keys, dtype=dtype, block=block)] * batch
    else:
        plans = [causal_plan(rows[:length], keys, dtype=dtype, block=block) for length in lengths]
    return Outlook((call.mask, call.bias), plans, bias)


def _split(mask: Tensor | None, queries: int) -> tuple[Tensor | None, Tensor | None]:
    """A mask (B or 1, H or 1, Sq or 1, Sk) as: which keys are seen, and what is added to their scores."""
    if mask is None:
        return None, None
    mask = mask.expand(-1, -1, queries, -1)
    if mask.dtype == torch.bool:
        return mask, None
    hidden = mask <= HIDING
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
