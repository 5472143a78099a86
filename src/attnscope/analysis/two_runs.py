"""Two runs side by side: allowed if one thing differs between them, so that what is found can be put down to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from attnscope.analysis.comparisons import Comparison
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.errors import AttnscopeError
from attnscope.text.segments import ANSWER, INSERTED, TEMPLATE

MODELS, PROMPTS, SEED, CONDITIONS, CLASSES, VERSIONS = "models", "prompts", "seed", "conditions", "classes", "versions"
MEASURE = "measure"
_LOOKS = ("label", "colour")  # what a thing is called and drawn like makes no number


def differing(one: Run, two: Run) -> list[str]:
    """The things that two runs differ in."""
    things = {
        MODELS: [_models(run) for run in (one, two)],
        PROMPTS: _prompts(one, two),
        SEED: [run.study.seed for run in (one, two)],
        CONDITIONS: [_conditions(run) for run in (one, two)],
        CLASSES: [list(run.study.rules.items()) for run in (one, two)],  # the first that claims a character has it
        MEASURE: [_measured(run) for run in (one, two)],
        VERSIONS: [run.manifest.versions for run in (one, two)],
    }
    found = [name for name, (first, second) in things.items() if first != second]
    return [name for name in found if name != SEED or PROMPTS not in found]  # another seed makes other prompts


def between(one: Run, two: Run) -> list[Comparison]:
    """What two runs let one compare, the second less the first; refused if more than one thing differs, or none."""
    found = differing(one, two)
    if len(found) != 1 or found == [MEASURE]:
        raise AttnscopeError(
            f"these runs differ in {' and '.join(found)}" if found else "these runs do not differ",
            where=f"{one.path} and {two.path}",
            allowed="runs that differ in one of models, prompts, seed, conditions, classes or versions",
            todo="run one of them again, changed in one thing only",
        )
    thing = found[0]
    pairs = list(_pairs_of_sides(one, two, thing))
    if not pairs:
        raise AttnscopeError(
            f"the {thing} of these runs can't be told which goes with which",
            where=f"{one.path} and {two.path}",
            allowed=f"the same names in both, or one of the {thing} that only each has",
            todo="give them the same names",
        )
    made = [Comparison("run", first, second, paired=thing != PROMPTS, thing=thing) for first, second in pairs]
    return [each for each in made if each.prompts]


def _pairs_of_sides(one: Run, two: Run, thing: str) -> Iterator[tuple[Side, Side]]:
    models = _paired(_models(one), _models(two), changed=thing == MODELS)
    conditions = _paired(_conditions(one), _conditions(two), changed=thing == CONDITIONS)
    for model, other in models:
        for condition, edited in conditions:
            yield Side(one, model, condition), Side(two, other, edited)


def _paired(first: dict[str, Any], second: dict[str, Any], *, changed: bool) -> list[tuple[str, str]]:
    """Names that go together: all; of what was changed, those that differ under one name, or one old and one new."""
    common = [name for name in first if name in second]
    if not changed:
        return [(name, name) for name in common]
    other = [(name, name) for name in common if first[name] != second[name]]
    gone, new = ([name for name in each if name not in common] for each in (first, second))
    return other + list(zip(gone, new, strict=True)) if len(gone) == len(new) <= 1 else other


def _models(run: Run) -> dict[str, Any]:
    """What a model's numbers depend on, by label."""
    known = run.manifest.models
    return {
        label: [sorted(file.sha256 for file in known[label].files), known[label].dtype, known[label].device_type]
        for label in run.models
    }


def _prompts(one: Run, two: Run) -> list[Any]:
    """How prompts are laid out, and their own words, without what a model's template or a condition adds.

    Of the prompts that both runs have, by number, if any: one of them may have been limited to the first few.
    """
    words = [_words(run) for run in (one, two)]
    common = words[0].keys() & words[1].keys()
    layouts = [run.study.prompts.model_dump(mode="json", include={"chat", "plain", "answer"}) for run in (one, two)]
    return [(layout, [each[number] for number in sorted(common)]) for layout, each in zip(layouts, words, strict=True)]


def _words(run: Run) -> dict[int, list[tuple[str, str]]]:
    here = (pl.col("model") == run.models[0]) & (pl.col("condition") == run.conditions[0])
    rows = run.table("prompts").filter(here).select("prompt", "text", "spans").collect()
    return {
        row["prompt"]: [
            (span["segment"], row["text"][span["start"] : span["end"]])
            for span in row["spans"]
            if span["segment"] not in (TEMPLATE, INSERTED, ANSWER)
        ]
        for row in rows.iter_rows(named=True)
    }


def _conditions(run: Run) -> dict[str, Any]:
    parts = {name: run.study.condition(name) for name in run.conditions}
    return {name: part.model_dump(mode="json", exclude={"name", *_LOOKS}) for name, part in parts.items()}


def _measured(run: Run) -> Any:
    """What comparisons depend on: not on measures besides what every key receives."""
    return run.study.measure.model_dump(mode="json", include={"queries", "layers", "heads"})
