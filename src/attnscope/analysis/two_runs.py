"""Compares two runs that differ in one thing only, so that a difference can be attributed to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnscope.analysis.comparisons import Comparison
from attnscope.analysis.own_text import own_text
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.errors import AttnscopeError

MODELS, PROMPTS, SEED, CONDITIONS, CLASSES, VERSIONS = "models", "prompts", "seed", "conditions", "classes", "versions"
MEASURE = "measure"
_LOOKS = ("label", "colour")  # names and colours don't affect numbers


def differing(one: Run, two: Run) -> list[str]:
    """What two runs differ in."""
    things = {
        MODELS: [_models(run) for run in (one, two)],
        PROMPTS: _prompts(one, two),
        SEED: [run.study.seed for run in (one, two)],
        CONDITIONS: [_conditions(run) for run in (one, two)],
        CLASSES: [list(run.study.rules.items()) for run in (one, two)],  # in order: the first that claims wins
        MEASURE: [_measure(run) for run in (one, two)],
        VERSIONS: [run.manifest.versions for run in (one, two)],
    }
    names = [name for name, (first, second) in things.items() if first != second]
    return [name for name in names if name != SEED or PROMPTS not in names]  # another seed draws other prompts


def between(one: Run, two: Run) -> list[Comparison]:
    """Comparisons of two runs, the second minus the first; refused unless they differ in exactly one thing."""
    names = differing(one, two)
    if not names:
        _refuse_part(one, two)
    if len(names) != 1 or names == [MEASURE]:
        raise AttnscopeError(
            f"these runs differ in {' and '.join(names)}" if names else "these runs do not differ",
            where=f"{one.path} and {two.path}",
            allowed="runs that differ in one of models, prompts, seed, conditions, classes or versions",
            todo="repeat one of them with a single change",
        )
    thing = names[0]
    pairs = list(_pairs_of_sides(one, two, thing))
    if not pairs:
        raise AttnscopeError(
            f"can't match the {thing} of these runs",
            where=f"{one.path} and {two.path}",
            allowed=f"the same names in both, or exactly one of the {thing} that differs",
            todo="give them the same names",
        )
    every = [Comparison("run", first, second, paired=thing != PROMPTS, differs_in=thing) for first, second in pairs]
    return [each for each in every if each.prompts]


def _refuse_part(one: Run, two: Run) -> None:
    """Refuse two runs that differ in nothing but how many prompts they have."""
    numbers = {run: set(own_text(run)) for run in (one, two)}
    few, many = sorted(numbers, key=lambda run: len(numbers[run]))
    if numbers[few] < numbers[many]:
        count = len(numbers[few])
        first = "the first " if numbers[few] == set(range(count)) else ""
        raise AttnscopeError(
            f"{few.path} is {many.path} with only {first}{count} of its {len(numbers[many])} prompts",
            where=f"{one.path} and {two.path}",
            allowed="runs that differ in one of models, prompts, seed, conditions, classes or versions",
            todo="repeat one of them with a single change",
        )


def _pairs_of_sides(one: Run, two: Run, thing: str) -> Iterator[tuple[Side, Side]]:
    models = _matching_names(_models(one), _models(two), changed=thing == MODELS)
    conditions = _matching_names(_conditions(one), _conditions(two), changed=thing == CONDITIONS)
    for model, other in models:
        for condition, edited in conditions:
            yield Side(one, model, condition), Side(two, other, edited)


def _matching_names(first: dict[str, Any], second: dict[str, Any], *, changed: bool) -> list[tuple[str, str]]:
    """Pairs of names: all common ones; of what changed, those that differ under one name, or one old and one new."""
    common = [name for name in first if name in second]
    if not changed:
        return [(name, name) for name in common]
    differing = [(name, name) for name in common if first[name] != second[name]]
    gone, new = ([name for name in each if name not in common] for each in (first, second))
    return differing + list(zip(gone, new, strict=True)) if len(gone) == len(new) <= 1 else differing


def _models(run: Run) -> dict[str, Any]:
    """What a model's numbers depend on, by label."""
    facts = run.manifest.models
    return {
        label: [sorted(file.sha256 for file in facts[label].files), facts[label].dtype, facts[label].device_type]
        for label in run.models
    }


def _prompts(one: Run, two: Run) -> list[Any]:
    """How prompts are laid out, and their own text, without what a model's template or a condition adds.

    Only of prompts that both runs have, by number: one of the runs may have been limited to the first few.
    """
    words = [own_text(run) for run in (one, two)]
    common = words[0].keys() & words[1].keys()
    layouts = [run.study.prompts.model_dump(mode="json", include={"chat", "plain", "answer"}) for run in (one, two)]
    return [(layout, [each[number] for number in sorted(common)]) for layout, each in zip(layouts, words, strict=True)]


def _conditions(run: Run) -> dict[str, Any]:
    specs = {name: run.study.condition(name) for name in run.conditions}
    return {name: spec.model_dump(mode="json", exclude={"name", *_LOOKS}) for name, spec in specs.items()}


def _measure(run: Run) -> Any:
    """What comparisons depend on: not on measures other than `received`."""
    return run.study.measure.model_dump(mode="json", include={"queries", "layers", "heads"})
