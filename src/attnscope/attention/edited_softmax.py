"""Edits in models outside the attention interface: their own softmax gives the changed weights.

Such a model multiplies its weights with its values itself. What is hidden is hidden from the scores that its softmax
gets, as by a mask; other changes are made to the weights that the softmax gives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnscope.attention.call import MatrixCall
from attnscope.attention.seam import Edits
from attnscope.attention.view import HIDING
from attnscope.errors import AttnscopeError

SOFTMAXES = (torch.softmax, torch.nn.functional.softmax, Tensor.softmax)


class EditedSoftmax(TorchFunctionMode):
    """Inside, softmaxes over keys give the edited weights of one layer."""

    def __init__(self, edits: Edits, layer: int) -> None:
        super().__init__()
        self.edits, self.layer = edits, layer
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func not in SOFTMAXES or not args or args[0].dim() < 3:
            return func(*args, **options)
        self.calls += 1
        given, *others = args
        scores = given.view(self.edits.batch, -1, *given.shape[-2:])
        call = MatrixCall(scores, torch.ones(1, 1, 1, 1, dtype=torch.bool, device=scores.device))
        hidden = self.edits.hidden(self.layer, call)
        if hidden is not None:
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
            self._refuse_blind(scores)
        weights = func(scores.view(given.shape), *others, **options)
        return self.edits.reweighted(self.layer, weights.view(scores.shape), call).view(weights.shape)

    def _refuse_blind(self, scores: Tensor) -> None:
        blind = (scores.amax(-1) <= HIDING).nonzero()
        if len(blind):
            raise AttnscopeError(
                f"the query at position {int(blind[0, 2])} sees no key in layer {self.layer}",
                where=f"prompt {int(blind[0, 0])} of the batch",
                allowed="queries that see at least one key",
                todo="hide fewer keys",
            )
