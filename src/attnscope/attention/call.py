"""One attention call: what a model hands over for one layer of one forward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


class _Sizes:
    """What calls of either kind have: B prompts, H heads, Sq queries and Sk keys."""

    start: int | None
    gone: int

    @property
    def like(self) -> Tensor:
        """A tensor (B, H, Sq, ...) of the call."""
        raise NotImplementedError

    @property
    def keys(self) -> int:
        raise NotImplementedError

    @property
    def batch(self) -> int:
        return self.like.shape[0]

    @property
    def heads(self) -> int:
        return self.like.shape[1]

    @property
    def queries(self) -> int:
        return self.like.shape[2]

    @property
    def first(self) -> int:
        """Which key is the first query's own. With a cache there are keys before it."""
        return self.keys - self.queries if self.start is None else self.start

    @property
    def device(self) -> torch.device:
        return self.like.device

    @property
    def dtype(self) -> torch.dtype:
        """What sums are computed in: float32, or float64 if the model is."""
        return torch.promote_types(self.like.dtype, torch.float32)


@dataclass(frozen=True)
class Call(_Sizes):
    """Queries (B, H, Sq, D), keys (B, Hkv, Sk, D) and values (B, Hkv, Sk, Dv), positions and norms applied."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    """(B or 1, H or 1, Sq or 1, Sk): True where a query sees a key, or numbers added to the scores."""
    causal: bool
    """Without a mask: whether a query sees only the keys up to its own position."""
    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None
    """(H,): a logit in every row whose weight no key receives."""
    bias: Tensor | None = None
    """(B or 1, H or 1, Sq or 1, Sk): added to the scores after the softcap."""
    window: int | None = None
    """How many keys back a query sees, its own included, where the model says so beside the mask or instead of it."""
    own_output: bool = False
    """Whether the output has to be the model's own: it is eager, gradients go through it, or dropout changes it."""
    foreign: bool = False
    """Whether an attention function that somebody registered makes the output: it may compute anything."""
    dropout: bool = False
    """Whether such an output is drawn anew each time."""
    start: int | None = None
    """Which key is the first query's own; by default the queries are the last of the keys."""
    gone: int = 0
    """How many of the text's first keys a cache has let go of."""

    @property
    def like(self) -> Tensor:
        return self.query

    @property
    def keys(self) -> int:
        return self.key.shape[2]

    @property
    def kv_heads(self) -> int:
        return self.key.shape[1]

    @property
    def native(self) -> bool:
        """Whether torch's own attention computes the output."""
        return self.softcap is None and self.sinks is None and self.bias is None and not self.windowed

    def detached(self) -> Call:
        """For reading beside gradients, which flow through the model's own output."""
        if not self.own_output:
            return self
        parts: dict[str, Any] = {name: each.detach() for name, each in vars(self).items() if isinstance(each, Tensor)}
        return replace(self, **parts)

    def cast(self, dtype: torch.dtype) -> Call:
        """As attention gets it under autocast; the output is the model's own then."""
        if self.query.dtype == torch.float64:
            return self
        parts = {name: getattr(self, name).to(dtype) for name in ("query", "key", "value")}
        return replace(self, own_output=True, **parts)

    @property
    def windowed(self) -> bool:
        """Whether a window limits what queries see that no mask shows."""
        return self.mask is None and self.window is not None and self.window < self.keys


@dataclass(frozen=True)
class MatrixCall(_Sizes):
    """A layer of a model that shows its attention weights (B, H, Sq, Sk) but not its queries and keys."""

    weights: Tensor
    mask: Tensor
    """(B or 1, 1, Sq, Sk): True where a query sees a key."""
    start: int | None = None
    """As of `Call`."""
    gone: int = 0
    """As of `Call`."""

    @property
    def like(self) -> Tensor:
        return self.weights

    @property
    def keys(self) -> int:
        return self.weights.shape[3]

    def detached(self) -> MatrixCall:
        """As it is: the model has made its output already."""
        return self

    def cast(self, dtype: torch.dtype) -> MatrixCall:
        """As it is: its weights were made under autocast."""
        return self


AnyCall = Call | MatrixCall
