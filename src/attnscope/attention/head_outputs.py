"""What heads give in a forward that changes nothing: kept at the seam, where edits would replace it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnscope.attention.call import AnyCall
from attnscope.attention.recorder import EnoughError
from attnscope.attention.seam import NoEdits
from attnscope.errors import AttnscopeError


class KeptOutputs(NoEdits):
    """Keeps the outputs of heads. lengths: of the batch's prompts, which are padded on the right.

    stop: end the forward once they are all there.
    """

    def __init__(self, name: str, heads: Mapping[int, Sequence[int]], lengths: Sequence[int], *, stop: bool) -> None:
        self.name, self.heads, self.lengths, self.stop = name, heads, lengths, stop
        self.prompts: list[dict[int, dict[int, NDArray[Any]]]] = [{} for _ in lengths]
        """Of each prompt, by layer and head: (tokens, width), in float32 unless the model is wider."""

    def output(self, layer: int, output: Tensor, call: AnyCall) -> Tensor:
        heads = self.heads.get(layer, ())
        for prompt, length in enumerate(self.lengths if heads else ()):
            self.prompts[prompt][layer] = {head: self._array(output[prompt, :length, head], layer) for head in heads}
        if self.stop and self.prompts[0].keys() == self.heads.keys():
            raise EnoughError
        return output

    def _array(self, output: Tensor, layer: int) -> NDArray[Any]:
        if not output.isfinite().all():
            raise AttnscopeError(
                f"{self.name} computes numbers that are not finite on this prompt",
                where=f"layer {layer}",
                allowed="finite outputs of heads",
                todo="check the model's weights, or try another dtype",
            )
        wide = output.to(torch.promote_types(output.dtype, torch.float32))
        return np.array(wide.cpu().numpy())  # a copy: the batch's own outputs go

    def named(self, every: Sequence[int]) -> dict[int, set[int]]:
        return {layer: set(heads) for layer, heads in self.heads.items()}
