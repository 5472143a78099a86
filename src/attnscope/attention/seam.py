"""Attention edits, as the seam applies them: hide keys before softmax, change weights after it, replace outputs."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from attnscope.attention.ask import WeightsEdit
from attnscope.attention.call import AnyCall


class Edits(Protocol):
    """All edits of one forward."""

    def touch(self, layer: int) -> bool:
        """Whether anything is changed in a layer."""

    def hidden(self, layer: int, call: AnyCall) -> Tensor | None:
        """(B or 1, H or 1, Sq, Sk): True where a key is hidden from a query before softmax; None if none is."""

    def weights(self, layer: int) -> WeightsEdit | None:
        """What changes the weights after softmax."""

    def output(self, layer: int, output: Tensor) -> Tensor:
        """The attention output (B, Sq, H, Dv) as the model is to get it."""


class NoEdits:
    """A forward as it is."""

    def touch(self, layer: int) -> bool:
        return False

    def hidden(self, layer: int, call: AnyCall) -> Tensor | None:
        return None

    def weights(self, layer: int) -> WeightsEdit | None:
        return None

    def output(self, layer: int, output: Tensor) -> Tensor:
        return output
