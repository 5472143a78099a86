"""Whether a study fits its models: checked from their configurations, before any weights are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnscope.errors import AttnscopeError, placed
from attnscope.models.architecture import Architecture
from attnscope.models.load import Description, look_up
from attnscope.runs.request import RunRequest
from attnscope.study.schema import DepthsSpec, Layers, ModelSpec, Study, layer_at


def fitting_models(request: RunRequest) -> list[tuple[ModelSpec, Description]]:
    """Look up every model of the study; refuse if one of them, or a layer or head the study names, does not exist."""
    models = []
    allowed: dict[str, Any] = {"trust_remote_code": request.trust_remote_code, "allow_pickle": request.allow_pickle}
    for spec in request.study.models:
        options = {name: value for name, value in spec.loading.items() if name != "dtype"}
        try:
            description = look_up(spec.source, **options, **allowed)
        except AttnscopeError as error:
            place = request.place_of_model(spec)
            if place is None or type(error) is not AttnscopeError:
                raise
            raise placed(error, place) from error.__cause__
        _check(request, spec, description.facts)
        models.append((spec, description))
    return models


def chosen_layers(spec: Layers, facts: Architecture) -> list[int]:
    """The layers of a model that a study asks for: numbers as given, depths relative to the model's own."""
    if spec == "all":
        return facts.softmax_layers
    if isinstance(spec, DepthsSpec):
        return sorted({layer_at(depth, facts.layers) for depth in spec.depths})
    return list(dict.fromkeys(spec))


def _check(request: RunRequest, spec: ModelSpec, facts: Architecture) -> None:
    study, measure = request.study, request.study.measure
    for layer in chosen_layers(measure.layers, facts):
        if layer not in facts.softmax_layers:
            where, reason = request.place(("measure", "layers")), facts.unreadable.get(layer)
            raise _missing("layer", layer, facts.softmax_layers, spec, where, reason)
    for head in () if measure.heads == "all" else measure.heads:
        if head >= facts.heads:
            raise _missing("head", head, range(facts.heads), spec, request.place(("measure", "heads")))
    for what, number, place in _shown(study, spec, facts):
        measured = chosen_layers(measure.layers, facts) if what == "layer" else _heads(study, facts)
        if number not in measured:
            where = f"{request.place(('figures', place, f'{what}s'))}, figure {study.figures[place].name}"
            raise _missing(what, number, measured, spec, where)


def _heads(study: Study, facts: Architecture) -> Sequence[int]:
    return range(facts.heads) if study.measure.heads == "all" else study.measure.heads


def _shown(study: Study, spec: ModelSpec, facts: Architecture) -> Iterator[tuple[str, int, int]]:
    """Every layer and head that a figure names by number or depth, from 0, and the figure's place."""
    for place, figure in enumerate(study.figures):
        for name in (spec.label, *([spec.family] if spec.family is not None else [])):
            asked = figure.asked(name)
            for layers in asked.layers:
                yield from (("layer", number, place) for number in chosen_layers(layers, facts))
            yield from (("head", number, place) for number in asked.heads)


def _missing(
    what: str, number: int, numbers: Sequence[int], spec: ModelSpec, where: str, reason: str | None = None
) -> AttnscopeError:
    gaps = len(numbers) != numbers[-1] - numbers[0] + 1
    return AttnscopeError(
        f"{what} {number} of {spec.label} can't be read: {reason or 'it does not exist or is not measured'}",
        where=where,
        allowed=f"{what}s {', '.join(map(str, numbers))}" if gaps else f"{what}s {numbers[0]} to {numbers[-1]}, from 0",
        todo="choose one of these" + (", or depths" if what == "layer" else ""),
    )
