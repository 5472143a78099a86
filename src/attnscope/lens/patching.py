"""What a caller of `intervene` takes from another prompt: outputs of heads, token by token or drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from attnscope.arguments import in_words, listed, numbers_of, place_of, shown, shown_parameter
from attnscope.edits.attention import AttentionEdit
from attnscope.edits.attention.head_outputs import HeadOutputs, resampled
from attnscope.edits.attention.patch import Patch
from attnscope.errors import AttnscopeError, Parameter
from attnscope.lens.intervening import Answered

RESAMPLE = "resample"
HOW = ("zero", "mean", RESAMPLE)
"""What outputs of ablated heads can be replaced by."""

Heads = dict[int, list[int]]
"""By layer."""


@dataclass(frozen=True)
class FromSource:
    """Heads that get outputs from another prompt, the source."""

    patch: Heads
    """Those that get the outputs of the token that is aligned with theirs."""
    resample: Heads
    """Those that get the outputs of tokens drawn at random."""
    align: dict[int, int] | None
    """For `patch`: positions in the source by position in the prompt; None for one by one."""
    seed: int

    @property
    def heads(self) -> Heads:
        """All of them."""
        layers = sorted({*self.patch, *self.resample})
        return {layer: sorted({*self.patch.get(layer, ()), *self.resample.get(layer, ())}) for layer in layers}

    def edits(self, prompt: Answered, source: Answered, values: HeadOutputs) -> list[AttentionEdit]:
        """The changes of the prompt. source: with the same answer; values: what heads give in it."""
        edits: list[AttentionEdit] = []
        if self.patch:
            edits.append(_patch(self.patch, values, self._alignment(prompt, source)))
        if self.resample:
            chance = Random(f"{self.seed}/{RESAMPLE}")  # noqa: S311
            edits.append(_patch(self.resample, values, resampled(len(prompt.ids), source.start, chance)))
        return edits

    def _alignment(self, prompt: Answered, source: Answered) -> list[int | None]:
        """For each token of the prompt and its answer, the token of the source and its answer."""
        if self.align is None:
            if prompt.start != source.start:
                raise AttnscopeError(
                    f"the prompt has {prompt.start} tokens and the source {source.start}",
                    where=Parameter("source"),
                    allowed="prompts of as many tokens, which are matched one by one",
                    todo=("change one of them, or say with ", Parameter("align"), " which token gets which"),
                )
            return list(range(len(prompt.ids)))
        for what, places, tokens in (
            ("prompt", self.align.keys(), len(prompt.ids)),
            ("source", self.align.values(), len(source.ids)),
        ):
            if max(places) >= tokens:
                raise AttnscopeError(
                    f"there is no token {max(places)} in the {what} and its answer",
                    where=Parameter("align"),
                    allowed=f"0 to {tokens - 1}",
                    todo="align tokens that exist",
                )
        return [self.align.get(place) for place in range(len(prompt.ids))]


def _patch(heads: Heads, values: HeadOutputs, align: Sequence[int | None]) -> Patch:
    return Patch.model_validate({"patch": heads, "values": values, "align": align})


def alignment_of(given: object) -> dict[int, int] | None:
    """Positions by position."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise AttnscopeError(
            "align matches no tokens",
            where=shown_parameter("align", given),
            allowed="positions in the source by position in the prompt, such as align={3: 4}",
            todo="name at least one token",
        )
    return {place_of(place, "align"): place_of(match, "align") for place, match in given.items()}


def heads_of(given: object, what: str, name: str, counts: Mapping[int, int]) -> Heads:
    """Heads by layer that a model has. counts: how many each layer has."""
    if not isinstance(given, Mapping) or not given or not all(map(listed, given.values())):
        raise AttnscopeError(
            f"{what} names no heads",
            where=shown_parameter(what, given),
            allowed=f"heads by layer, such as {what}={{18: [6, 7]}}",
            todo="name at least one head of each layer",
        )
    heads: Heads = {}
    for layer, each in given.items():
        number = place_of(layer, what)
        if number not in counts:
            raise _absent(f"{name} has no attention to read in layer {number}", what, in_words("layers", list(counts)))
        heads[number] = sorted(set(numbers_of(each, what)))
        for head in heads[number]:
            if not 0 <= head < counts[number]:
                there = in_words("heads", range(counts[number]))
                raise _absent(f"layer {number} of {name} has no head {head}", what, there)
    return heads


def resampled_heads(ablate: object, how: object) -> object:
    """The heads to ablate, if that is by outputs from another prompt."""
    if ablate is not None and how not in (None, *HOW):
        raise AttnscopeError(
            f"heads can't be ablated by {shown(how)}",
            where=shown_parameter("how", how),
            allowed=f"one of {', '.join(HOW)}",
            todo="choose one of these",
        )
    return ablate if how == RESAMPLE else None


def refuse_without_source(given: FromSource, source: object) -> None:
    """Refuse heads that get outputs from nowhere, and a source or an alignment that nothing is taken by."""
    if given.heads and source is None:
        raise AttnscopeError(
            "there is no prompt to take the outputs of heads from",
            where=Parameter("source"),
            allowed="another prompt, as a string",
            todo="give one",
        )
    if not given.heads and source is not None:
        raise AttnscopeError(
            "nothing is taken from the source",
            where=Parameter("source"),
            allowed=("heads to patch, or heads to ablate with ", Parameter("how", RESAMPLE)),
            todo="name the heads, or leave the source out",
        )
    if not given.patch and given.align is not None:
        raise AttnscopeError(
            "no heads are patched along the alignment",
            where=Parameter("align"),
            allowed=("with ", Parameter("patch")),
            todo="name the heads to patch, or leave the alignment out",
        )


def _absent(what: str, parameter: str, allowed: str) -> AttnscopeError:
    return AttnscopeError(what, where=Parameter(parameter), allowed=allowed, todo="choose from these")
