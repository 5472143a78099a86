"""Problems of a study's interventions and outcome: names that don't exist, controls of nothing, no answer to score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.edits.attention.hide import Hide
from attnscope.edits.attention.patch import Patch
from attnscope.errors import near
from attnscope.measures.names import head_measures
from attnscope.study.interventions import MATCHED, ChangeSpec, InterventionSpec
from attnscope.study.problem import Problem, duplicates, name_problems, shared_labels
from attnscope.text.classes import OTHER, PREFIX
from attnscope.text.groups.last import LAST

if TYPE_CHECKING:
    from attnscope.study.schema import Study

At = tuple[str | int, ...]


def of_interventions(study: Study) -> Iterator[Problem]:
    """All problems of interventions and their outcome that can be found without reading the prompts."""
    places = [("interventions", place) for place in range(len(study.interventions))]
    yield from duplicates([(*at, "name") for at in places], study.interventions, "name")
    yield from shared_labels(
        [(*at, "label") for at in places], [each.label or each.name for each in study.interventions]
    )
    yield from _of_outcome(study)
    for at, spec in zip(places, study.interventions, strict=True):
        yield from _of_control(study, spec, at)
        if spec.sweep is not None and spec.over == "classes" and not study.classes:
            yield Problem((*at, "sweep", "over"), "the study has no classes to sweep over", "classes: {name: rule}")
        for change in spec.every_change:
            yield from _of_change(study, change, (*at, *_inside(spec), change.edit))


def written_rules(study: Study) -> Iterator[tuple[At, str]]:
    """The class rules that interventions hide keys by, each after its place."""
    for at, change in _hiding(study):
        keys = change.options.get(Hide.key)
        if isinstance(keys, str) and keys not in _named(study) and PREFIX.match(keys):
            yield (*at, "keys"), keys


def written_queries(study: Study) -> Iterator[tuple[At, str]]:
    """The query groups that interventions hide keys from, each after its place."""
    for at, change in _hiding(study):
        queries = change.options.get("queries")
        if isinstance(queries, str):
            yield (*at, "from"), queries


def _hiding(study: Study) -> Iterator[tuple[At, ChangeSpec]]:
    for place, spec in enumerate(study.interventions):
        for change in spec.every_change:
            if change.kind is Hide:
                yield ("interventions", place, *_inside(spec), change.edit), change


def _inside(spec: InterventionSpec) -> tuple[str, ...]:
    return () if spec.sweep is None else ("sweep",)


def _named(study: Study) -> list[str]:
    """The classes and sets that keys can be hidden by."""
    return [*study.classes, OTHER, *study.also]


def _of_outcome(study: Study) -> Iterator[Problem]:
    outcome, answer = study.outcome, study.prompts.answer
    if outcome is None:
        if study.interventions:
            what = "nothing says what interventions are judged by"
            yield Problem(("interventions",), what, "outcome: {scores: [logprob]}, and prompts with an answer")
        return
    if not study.interventions:
        yield Problem(("outcome",), "there are no interventions to judge", "interventions: [...]", "add some")
    if outcome.answer is None and answer is None:
        what = "an outcome needs an answer"
        yield Problem(("outcome",), what, "answer: FIELD here or, to measure attention from it as well, in prompts")
    if outcome.answer is not None and answer is not None and outcome.answer != answer.field:
        what = "prompts have an answer already, and the outcome names another one"
        yield Problem(("outcome", "answer"), what, "one answer; remove one of them")
    known = [spec.name for spec in study.conditions]
    yield from name_problems(outcome.conditions or (), known, ("outcome", "conditions"))


def _of_control(study: Study, spec: InterventionSpec, at: At) -> Iterator[Problem]:
    if spec.like is None:
        return
    others = {each.name: each for each in study.interventions if not each.is_none and each.like is None}
    other = others.get(spec.like)
    if other is None:
        what = f"there is no intervention '{spec.like}' to be a control for"
        yield Problem((*at, str(spec.draw)), what, near(spec.like, others))
        return
    if not other.can_be_drawn:
        sweeps = other.over == "heads"
        why = "its other heads are" if sweeps else "it makes several changes, or nothing like it can be drawn"
        what = f"'{other.name}' has no control: {why}"
        yield Problem((*at, str(spec.draw)), what, "interventions that hide keys or switch some heads off")
    if spec.draw == MATCHED and any(change.of_heads and change.top is None for change in other.every_change):
        what = f"the heads of '{other.name}' are given by number, so there is nothing to match others on"
        yield Problem((*at, MATCHED), what, "heads: top 10 by NAME; or a random control")
    for change in spec.restated:
        if not change.open or not any(_same_but_subject(change, each) for each in other.every_change):
            what = f"a control changes the same queries, layers and heads as '{other.name}'"
            yield Problem((*at, change.edit), what, f"{spec.draw}: like {other.name}, and nothing else")


def _same_but_subject(one: ChangeSpec, two: ChangeSpec) -> bool:
    """Whether two changes differ in the keys or heads that they are about at most."""
    edits = [change.without_subject() for change in (one, two)]
    return (one.edit, edits[0], one.layers) == (two.edit, edits[1], two.layers)


def _of_change(study: Study, change: ChangeSpec, at: At) -> Iterator[Problem]:
    keys, queries = change.options.get(Hide.key), change.options.get("queries")
    if change.kind is Hide and isinstance(keys, str) and keys not in _named(study) and not PREFIX.match(keys):
        allowed = f"{near(keys, _named(study))}; or a class rule such as segment:question"
        yield Problem((*at, "keys"), f"there is no class or set '{keys}'", allowed)
    if change.kind is Hide and queries == LAST.name and study.prompts.answer is not None:
        what = "the last token is the answer's, and nothing is written after it"
        yield Problem((*at, "from"), what, "writing: the tokens that write the answer; or another group")
    conditions = [spec.name for spec in study.conditions]
    condition = change.options.get("condition") if change.kind is Patch else None
    if change.kind is Patch and condition not in conditions:
        yield Problem((*at, "from"), f"there is no condition '{condition}'", near(condition, conditions))
    top = change.top
    if top is None:
        return
    known = [
        *study.token_sets,
        *study.quantities,
        *(each for each in study.measure.all_measures if each in head_measures()),
    ]
    if top.by not in known:
        yield Problem(
            (*at, "heads", "by"), f"there is no class, set, quantity or measure '{top.by}'", near(top.by, known)
        )
    if top.queries is not None and top.queries not in study.measure.groups:
        what = f"query group '{top.queries}' is not measured"
        yield Problem((*at, "heads", "queries"), what, near(top.queries, study.measure.groups))
    labels = [spec.label for spec in study.models]
    yield from name_problems(top.difference or (), labels, (*at, "heads", "difference"))
    if top.condition is not None and top.condition not in conditions:
        what = f"there is no condition '{top.condition}'"
        yield Problem((*at, "heads", "condition"), what, near(top.condition, conditions))
