"""Attention edits, as the seam applies them: hide keys before softmax, change weights after it, replace outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from attnscope.arguments import in_words
from attnscope.attention.ask import WeightsEdit
from attnscope.attention.blame import shaped
from attnscope.attention.call import AnyCall
from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.hide import Hide
from attnscope.errors import AttnscopeError, Parameter
from attnscope.models.memory import is_out_of_memory
from attnscope.text.rules import Tokenized


class Edits(Protocol):
    """All edits of one forward."""

    @property
    def batch(self) -> int:
        """How many prompts it has."""

    def touch(self, layer: int) -> bool:
        """Whether anything is changed in a layer."""

    def touch_weights(self, layer: int) -> bool:
        """Whether attention weights are changed in a layer; if not, the model's own output is what is edited."""

    def hidden(self, layer: int, call: AnyCall) -> Tensor | None:
        """(B or 1, H or 1, Sq, Sk): True where a key is hidden from a query before softmax; None if none is."""

    def weights(self, layer: int, call: AnyCall) -> WeightsEdit | None:
        """What changes the weights after softmax."""

    def reweighted(self, layer: int, weights: Tensor, call: AnyCall) -> Tensor:
        """All changed weights (B, H, Sq, Sk) of a model that makes its output from them itself."""

    def output(self, layer: int, output: Tensor, call: AnyCall) -> Tensor:
        """The attention output (B, Sq, H, Dv) as the model is to get it."""

    def named(self, every: Sequence[int]) -> dict[int, set[int]]:
        """By layer that is edited, the heads that are named. every: the layers that "all" stands for."""


class NoEdits:
    """A forward as it is."""

    batch = 0

    def touch(self, layer: int) -> bool:
        return False

    def touch_weights(self, layer: int) -> bool:
        return False

    def hidden(self, layer: int, call: AnyCall) -> Tensor | None:
        return None

    def weights(self, layer: int, call: AnyCall) -> WeightsEdit | None:
        return None

    def reweighted(self, layer: int, weights: Tensor, call: AnyCall) -> Tensor:
        return weights

    def output(self, layer: int, output: Tensor, call: AnyCall) -> Tensor:
        return output

    def named(self, every: Sequence[int]) -> dict[int, set[int]]:
        return {}


@dataclass(frozen=True)
class PlacedEdits:
    """Edits with positions: `prompts[n]` are those of the batch's prompt n, `lengths[n]` its number of tokens."""

    prompts: Sequence[Sequence[AttentionEdit]]
    lengths: Sequence[int]

    @property
    def batch(self) -> int:
        return len(self.prompts)

    def touch(self, layer: int) -> bool:
        return any(edit.applies_to(layer) for edits in self.prompts for edit in edits)

    def touch_weights(self, layer: int) -> bool:
        return any(edit.changes == "weights" and edit.applies_to(layer) for edits in self.prompts for edit in edits)

    def hidden(self, layer: int, call: AnyCall) -> Tensor | None:
        masks = [[edit for edit in edits if _masks(edit) and edit.applies_to(layer)] for edits in self.prompts]
        if not any(masks):
            return None
        per_head = any(edit.heads != "all" for edits in masks for edit in edits if isinstance(edit, Hide))
        heads = call.heads if per_head else 1
        hidden = torch.zeros(call.batch, heads, call.queries, call.keys, dtype=torch.bool, device=call.device)
        for prompt, edits in enumerate(masks):
            for edit in edits:
                if isinstance(edit, Hide):
                    _hide(hidden[prompt], edit, call)
        return hidden

    def weights(self, layer: int, call: AnyCall) -> WeightsEdit | None:
        edits = [
            tuple(edit for edit in each if edit.changes == "weights" and not _masks(edit) and edit.applies_to(layer))
            for each in self.prompts
        ]
        return WeightsEdit(layer, tuple(edits), call.gone) if any(edits) else None

    def reweighted(self, layer: int, weights: Tensor, call: AnyCall) -> Tensor:
        edit = self.weights(layer, call)
        changed = weights.clone()
        for prompt, changes in enumerate(self._of_outputs(layer)):
            if edit is not None:
                q = torch.arange(call.queries, device=call.device) + call.first
                k = torch.arange(call.keys, device=call.device)
                changed[prompt] = edit(changed[prompt], prompt, range(call.heads), q, k)
            for each in changes:
                if not isinstance(each, Ablate) or each.how != "zero":
                    raise AttnscopeError(
                        "the output of this model's heads can't be replaced, only switched off",
                        where=Parameter("edits"),
                        allowed="ablate with how: zero",
                        todo="switch heads off, or choose a model that follows transformers' attention interface",
                    )
                changed[prompt, list(each.heads_of(layer))] = 0
        return changed

    def _of_outputs(self, layer: int) -> list[list[AttentionEdit]]:
        """By prompt, the edits that change outputs of heads."""
        return [
            [edit for edit in edits if edit.changes == "outputs" and edit.applies_to(layer)] for edits in self.prompts
        ]

    def output(self, layer: int, output: Tensor, call: AnyCall) -> Tensor:
        changes = self._of_outputs(layer)
        if not any(changes):
            return output
        changed, first = output.clone(), call.first + call.gone
        for prompt, edits in enumerate(changes):
            real = output[prompt, : self.lengths[prompt] - first]  # pads come last
            q = torch.arange(first, first + len(real), device=output.device)
            changed[prompt, : len(real)] = _output(edits, real, layer, q)
        return changed

    def named(self, every: Sequence[int]) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for edit in {id(each): each for edits in self.prompts for each in edits}.values():
            for layer, heads in edit.named(every).items():
                found.setdefault(layer, set()).update(heads)
        return found


def _output(edits: Sequence[AttentionEdit], outputs: Tensor, layer: int, q: Tensor) -> Tensor:
    """Outputs (rows, heads, width) of one prompt -> the changed ones."""
    for edit in edits:
        with ATTENTION_EDITS.blamed(edit.key, "outputs", excused=is_out_of_memory):
            changed = edit.outputs(outputs, layer, q)
        outputs = shaped(ATTENTION_EDITS, edit.key, "outputs", changed, outputs.shape)
    return outputs


def placed_in(prompt: Tokenized, edits: Sequence[AttentionEdit]) -> list[AttentionEdit]:
    """The edits with positions in one prompt."""
    return [_placed(edit, prompt) for edit in edits]


def _placed(edit: AttentionEdit, prompt: Tokenized) -> AttentionEdit:
    with ATTENTION_EDITS.blamed(edit.key, "placed"):
        placed: object = edit.placed(prompt)
    if not isinstance(placed, AttentionEdit):
        raise ATTENTION_EDITS.mistake(edit.key, "placed", f"returns a {type(placed).__name__}", "an attention edit")
    return placed


def _masks(edit: AttentionEdit) -> bool:
    """Whether an edit is a mask: then it goes in before softmax, which is exact however little is left."""
    return isinstance(edit, Hide) and edit.how == "renormalise"


def _hide(hidden: Tensor, edit: Hide, call: AnyCall) -> None:
    """Hidden (heads or 1, Sq, Sk) is written to."""
    first = call.first + call.gone
    rows = torch.as_tensor([place - first for place in edit.query_positions if place >= first])
    keys = torch.as_tensor(
        [place - call.gone for place in edit.key_positions if call.gone <= place < call.gone + call.keys]
    )
    if not len(rows) or not len(keys):
        return
    heads = range(len(hidden)) if edit.heads == "all" or len(hidden) == 1 else edit.heads
    for head in heads:
        hidden[head, rows[:, None], keys[None, :]] = True


def refuse_absent(
    edits: Edits,
    name: str,
    readable: Sequence[int],
    unreadable: Mapping[int, str],
    count: Callable[[], Mapping[int, int]],
) -> None:
    """Refuse edits of layers and heads that a model doesn't have. count: gives the number of heads by layer."""
    for layer, heads in edits.named(readable).items():
        if layer not in readable:
            why = unreadable.get(layer)
            raise AttnscopeError(
                f"{name} has no attention to edit in layer {layer}" + (f": {why}" if why else ""),
                where=Parameter("edits"),
                allowed=in_words("layers", readable),
                todo="choose layers from these",
            )
        beyond = sorted(head for head in heads if head >= count()[layer])
        if beyond:
            raise AttnscopeError(
                f"layer {layer} of {name} has no head {beyond[0]}",
                where=Parameter("edits"),
                allowed=in_words("heads", range(count()[layer])),
                todo="choose heads from these",
            )
