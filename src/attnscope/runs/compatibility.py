"""Whether a study fits its models: checked from their configurations, before any weights are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnscope.errors import AttnscopeError
from attnscope.models.architecture import Architecture
from attnscope.models.load import Description, look_up
from attnscope.study.schema import DepthsSpec, Layers, ModelSpec, Study, layer_at


def fitting_models(
    study: Study, *, trust_remote_code: bool = False, allow_pickle: bool = False
) -> list[tuple[ModelSpec, Description]]:
    """Look up every model of the study; refuse if one of them, or a layer or head the study names, does not exist."""
    models = []
    for spec in study.models:
        options = spec.model_dump(exclude={"label", "source", "colour", "dtype"})
        description = look_up(spec.source, **options, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
        _check(study, spec, description.facts)
        models.append((spec, description))
    return models


def chosen_layers(spec: Layers, facts: Architecture) -> list[int]:
    """The layers of a model that a study asks for: numbers as given, depths relative to the model's own."""
    if spec == "all":
        return facts.softmax_layers
    if isinstance(spec, DepthsSpec):
        return sorted({layer_at(depth, facts.layers) for depth in spec.depths})
    return list(dict.fromkeys(spec))


def _check(study: Study, spec: ModelSpec, facts: Architecture) -> None:
    for layer in chosen_layers(study.measure.layers, facts):
        _refuse_unless_in("layer", layer, facts.softmax_layers, spec, "measure.layers", facts.unreadable.get(layer))
    for head in () if study.measure.heads == "all" else study.measure.heads:
        _refuse_unless_in("head", head, range(facts.heads), spec, "measure.heads")
    for what, number, where in _shown(study, spec, facts):
        measured = chosen_layers(study.measure.layers, facts) if what == "layer" else _heads(study, facts)
        _refuse_unless_in(what, number, measured, spec, where)


def _heads(study: Study, facts: Architecture) -> Sequence[int]:
    return range(facts.heads) if study.measure.heads == "all" else study.measure.heads


def _shown(study: Study, spec: ModelSpec, facts: Architecture) -> Iterator[tuple[str, int, str]]:
    """Every layer and head that a figure names by number or depth, from 0, and the figure."""
    for figure in study.figures:
        asked, where = figure.asked(spec.label), f"figure {figure.name}"
        for layers in asked.layers:
            yield from (("layer", number, where) for number in chosen_layers(layers, facts))
        yield from (("head", number, where) for number in asked.heads)


def _refuse_unless_in(
    what: str, number: int, numbers: Sequence[int], spec: ModelSpec, where: str, reason: str | None = None
) -> None:
    if number in numbers:
        return
    gaps = len(numbers) != numbers[-1] - numbers[0] + 1
    raise AttnscopeError(
        f"{what} {number} of {spec.label} can't be read: {reason or 'it does not exist or is not measured'}",
        where=where,
        allowed=f"{what}s {', '.join(map(str, numbers))}" if gaps else f"{what}s {numbers[0]} to {numbers[-1]}, from 0",
        todo="choose one of these" + (", or depths" if what == "layer" else ""),
    )
