"""The variants of one model: every way in which the study's interventions change its attention.

What depends on the model is settled here: layers by depth, heads by rank, the places of a sweep. What depends on the
prompt, such as which tokens are hidden, is settled in `trials`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnscope.arguments import in_words
from attnscope.edits.attention import AttentionEdit
from attnscope.errors import AttnscopeError
from attnscope.study.interventions import ChangeSpec, Draw, InterventionSpec, SweepSpec, TopSpec
from attnscope.study.layers import BandSpec
from attnscope.study.schema import Study

Head = tuple[int, int]
"""A layer and a head of it."""
HeadMeans = Callable[[TopSpec], Mapping[Head, float]]
"""The mean over prompts of what heads are ranked by, of every head that was measured."""

MOST = 20_000  # variants of a prompt; more is a mistake


@dataclass(frozen=True)
class Variant:
    """One way in which attention is changed. layer, head, token_class: its place in a sweep."""

    intervention: str
    edits: tuple[AttentionEdit, ...] = ()
    """Not yet placed: class rules, names of classes and query groups are as in the study."""
    layer: int | None = None
    head: int | None = None
    token_class: str | None = None
    draw: Draw | None = None
    """Of a control: what it changes instead, as much as `edits` do."""
    redraws: str | None = None
    """The control whose second draw it is."""
    ranks: Mapping[Head, float] | None = None
    """For a matched control of heads: what heads are ranked by, in the model itself."""

    @property
    def place(self) -> tuple[int | None, int | None, str | None]:
        return self.layer, self.head, self.token_class


def variants_of(study: Study, label: str, heads: Mapping[int, int], depth: int, means: HeadMeans) -> list[Variant]:
    """The variants of a model, in the study's order; the model as it is, is none of them.

    heads: how many each readable layer has; depth: how many layers the model has.
    """
    made: dict[str, list[Variant]] = {}
    changing = [spec for spec in study.interventions if not spec.is_none]
    for spec in changing:
        if spec.like is None:
            made[spec.name] = list(_Maker(study, label, heads, depth, means, spec).variants())
    for spec in changing:
        if spec.like is not None:
            made[spec.name] = [
                replace(each, intervention=spec.name, draw=spec.draw, redraws=spec.redraws) for each in made[spec.like]
            ]
    every = [variant for spec in changing for variant in made[spec.name]]
    if len(every) > MOST:
        raise AttnscopeError(
            f"the interventions change attention in {len(every):,} ways",
            where=f"interventions, model {label}",
            allowed=f"at most {MOST:,}",
            todo="sweep over fewer layers or heads",
        )
    return every


@dataclass(frozen=True)
class _Maker:
    """Makes the variants of one intervention."""

    study: Study
    label: str
    heads: Mapping[int, int]
    depth: int
    means: HeadMeans
    spec: InterventionSpec

    def variants(self) -> Iterator[Variant]:
        if self.spec.sweep is not None:
            yield from self._swept(self.spec.sweep)
            return
        edits, ranks = [], None
        for change in self.spec.changes:
            subject = None
            if change.top is not None:
                subject = _by_layer(_best(self._ranked(change, change.top), change.top.top))
                ranks = self._ranked(change, change.top.model_copy(update={"difference": None}))
            edits.append(self._made(change, self._layers(change), subject))
        yield Variant(self.spec.name, tuple(edits), ranks=ranks)

    def _swept(self, sweep: SweepSpec) -> Iterator[Variant]:
        change, name = sweep.change, self.spec.name
        layers = self._layers(change)
        if sweep.over == "classes":
            for token_class in self.study.classes:
                yield Variant(name, (self._made(change, layers, token_class),), token_class=token_class)
        elif sweep.over == "heads":
            for layer in layers:
                for head in range(self.heads[layer]):
                    yield Variant(name, (self._one_head(change, layer, head),), layer=layer, head=head)
        else:
            if sweep.window > len(layers):
                raise self._wrong(
                    f"a window of {sweep.window} layers is wider than the {len(layers)} layers that are swept",
                    f"at most {len(layers)}",
                )
            last = len(layers) - sweep.window
            for first in dict.fromkeys([*range(0, last + 1, sweep.step), last]):  # the deepest window, too
                window = layers[first : first + sweep.window]
                yield Variant(name, (self._made(change, window, None),), layer=window[0])

    def _one_head(self, change: ChangeSpec, layer: int, head: int) -> AttentionEdit:
        if change.of_heads:
            return self._made(change, [layer], {layer: (head,)})
        return self._made(change, [layer], None, heads=(head,))

    def _made(self, change: ChangeSpec, layers: Sequence[int], subject: Any, **more: Any) -> AttentionEdit:
        edit = change.made(tuple(layers), subject, **more)
        for layer, heads in edit.named(sorted(self.heads)).items():
            beyond = [head for head in heads if head >= self.heads.get(layer, 0)]
            if layer not in self.heads or beyond:
                what = f"layer {layer}" if layer not in self.heads else f"head {beyond[0]} in layer {layer}"
                known = (
                    f"heads 0 to {self.heads[layer] - 1}"
                    if beyond and layer in self.heads
                    else in_words("layers", sorted(self.heads))
                )
                raise self._wrong(f"{self.label} has no {what} to change", known)
        return edit

    def _layers(self, change: ChangeSpec) -> list[int]:
        if isinstance(change.layers, BandSpec):
            layers = [layer for layer in change.layers.layers(self.depth) if layer in self.heads]
            if not layers:
                raise self._wrong(
                    f"{self.label} has no attention to change at these depths", in_words("layers", sorted(self.heads))
                )
            return layers
        layers = sorted(self.heads) if change.layers == "all" else sorted(set(change.layers))
        beyond = [layer for layer in layers if layer not in self.heads]
        if beyond:
            raise self._wrong(
                f"{self.label} has no layer {beyond[0]} to change", in_words("layers", sorted(self.heads))
            )
        return layers

    def _ranked(self, change: ChangeSpec, top: TopSpec) -> dict[Head, float]:
        """What heads are ranked by, of those in the layers that the change names."""
        layers = set(self._layers(change))
        ranks = {head: value for head, value in self.means(top).items() if head[0] in layers}
        if len(ranks) < top.top:
            raise self._wrong(
                f"{len(ranks)} heads have a value of '{top.by}', and {top.top} are wanted",
                f"at most {len(ranks)}",
            )
        return ranks

    def _wrong(self, what: str, allowed: str) -> AttnscopeError:
        return AttnscopeError(
            what, where=f"interventions, {self.spec.name}", allowed=allowed, todo="change the intervention"
        )


def _best(ranks: Mapping[Head, float], count: int) -> list[Head]:
    """The heads that have most; of equal ones, the earlier."""
    return sorted(ranks, key=lambda head: (-ranks[head], head))[:count]


def _by_layer(heads: Sequence[Head]) -> dict[int, tuple[int, ...]]:
    return {
        layer: tuple(sorted(head for at, head in heads if at == layer)) for layer in sorted({at for at, _ in heads})
    }
