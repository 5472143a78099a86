"""An attention edit: `sharpen: 2` squares the weights, so that large ones gain and small ones lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from attnscope.edits.attention import AttentionEdit


class Sharpen(AttentionEdit):
    """Raises attention weights to a power and scales each row back to its sum."""

    key: ClassVar[str] = "sharpen"

    sharpen: float = Field(gt=0, description="The power; 1 changes nothing.")

    def weights(self, weights: Any, layer: int, heads: Sequence[int], q: Any, k: Any) -> Any:
        powers = weights**self.sharpen
        return powers * (weights.sum(-1, keepdim=True) / powers.sum(-1, keepdim=True).clamp(min=1e-38))
