"""Whether a study fits its models: told from their configurations, before any weights are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnscope.errors import AttnscopeError
from attnscope.models.architecture import Architecture
from attnscope.models.load import Description, look_up
from attnscope.study.schema import DepthsSpec, Layers, ModelSpec, Study, layer_at


def fitting_models(
    study: Study, *, trust_remote_code: bool = False, allow_pickle: bool = False
) -> list[tuple[ModelSpec, Description]]:
    """Every model of the study, looked up; refused if one of them, or a layer or head of it, is not there."""
    found = []
    for part in study.models:
        options = part.model_dump(exclude={"label", "source", "colour", "dtype"})
        description = look_up(part.source, **options, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
        _check(study, part, description.facts)
        found.append((part, description))
    return found


def chosen_layers(spec: Layers, facts: Architecture) -> list[int]:
    """The layers a study asks for in a model: numbers as they are, depths by the model's own."""
    if spec == "all":
        return facts.softmax_layers
    if isinstance(spec, DepthsSpec):
        return sorted({layer_at(depth, facts.layers) for depth in spec.depths})
    return list(dict.fromkeys(spec))


def _check(study: Study, part: ModelSpec, facts: Architecture) -> None:
    for layer in chosen_layers(study.measure.layers, facts):
        _known("layer", layer, facts.softmax_layers, part, "measure.layers", facts.unreadable.get(layer))
    for head in () if study.measure.heads == "all" else study.measure.heads:
        _known("head", head, range(facts.heads), part, "measure.heads")
    for what, number, where in _shown(study, part, facts):
        measured = chosen_layers(study.measure.layers, facts) if what == "layer" else _heads(study, facts)
        _known(what, number, measured, part, where)


def _heads(study: Study, facts: Architecture) -> Sequence[int]:
    return range(facts.heads) if study.measure.heads == "all" else study.measure.heads


def _shown(study: Study, part: ModelSpec, facts: Architecture) -> Iterator[tuple[str, int, str]]:
    """Every layer and head that a figure asks for by number or depth, from 0, and where it does."""
    for figure in study.figures:
        asked, where = figure.asked(part.label), f"figure {figure.name}"
        for layers in asked.layers:
            yield from (("layer", number, where) for number in chosen_layers(layers, facts))
        yield from (("head", number, where) for number in asked.heads)


def _known(
    what: str, number: int, there: Sequence[int], part: ModelSpec, where: str, reason: str | None = None
) -> None:
    if number in there:
        return
    gaps = len(there) != there[-1] - there[0] + 1
    raise AttnscopeError(
        f"{what} {number} of {part.label} can't be read: {reason or 'it is not there or not measured'}",
        where=where,
        allowed=f"{what}s {', '.join(map(str, there))}" if gaps else f"{what}s {there[0]} to {there[-1]} (from 0)",
        todo="choose others" + (", or depths" if what == "layer" else ""),
    )
