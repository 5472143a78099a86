"""The overview page: what a run has, its evidence and its comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

from attnscope.analysis.run import Run
from attnscope.analysis.sides import empty_classes, masses, seen_classes
from attnscope.errors import AttnscopeError
from attnscope.explorer import responses
from attnscope.explorer.views.sections import sections, sections_of
from attnscope.figures import selection, sentences
from attnscope.figures.validation import options_of
from attnscope.figures.write import figure_of
from attnscope.measures.names import map_measures, title_of
from attnscope.report.comparison_tables import facts as facts_of
from attnscope.report.comparison_tables import sheets as tables_of
from attnscope.report.evidence import evidence_card
from attnscope.report.files import EVIDENCE_DATA, is_reported, written_answer
from attnscope.report.page import summary_of
from attnscope.study.consistency import unmeasured
from attnscope.study.schema import FigureSpec

MOST_DROPPED = 100  # prompts that are listed
PRELOADED = 4  # pairs of a model and a condition that are read before anyone asks


def preload(run: Run) -> None:
    """Read what the first click on a run would have to wait for."""
    for model, condition in list(product(run.models, run.conditions))[:PRELOADED]:
        masses(run, model, condition, run.queries[0])
    run.cells.verify_all()
    model = run.models[0]
    panel = {"model": model, "layer": run.layers(model)[0], "head": run.heads(model)[0]}
    figure_of(run, FigureSpec(name="first", kind="lines", panels=[panel]))


def run_facts(name: str, run: Run) -> responses.RunFacts:
    """Everything that can be chosen in a run, for all pages."""
    dropped = run.manifest.dropped
    prompts = {number for model in run.models for each in run.conditions for number in run.prompts(model, each)}
    return responses.RunFacts(
        name=name,
        title=run.study.title or name,
        question=run.study.question,
        answer=written_answer(run),
        status=run.status,
        planned=f"{sentences.counted(len(run.study.models), 'model')} and "
        f"{sentences.counted(len(run.study.conditions), 'condition')}",
        summary=summary_of(run),
        prompts=len(prompts),
        first_prompt=min(prompts),
        models=[_model(run, label) for label in run.models],
        conditions=[_condition(run, each) for each in run.conditions],
        queries=[responses.Choice(name=each.name, label=selection.group_words(each.name)) for each in run.groups],
        classes=[_class(run, each) for each in run.token_sets],
        measures=list(_measures(run)),
        figures=[_figure(spec) for spec in run.study.figures if _is_shown(run, spec)],
        empty=empty_classes(run),
        dropped=[responses.DroppedPrompt(**each.model_dump()) for each in dropped[:MOST_DROPPED]],
        more_dropped=max(0, len(dropped) - MOST_DROPPED),
        command=run.manifest.command,
    )


def _model(run: Run, label: str) -> responses.ModelFacts:
    entry = run.manifest.models[label]
    return responses.ModelFacts(
        label=label,
        about=f"{entry.architecture}, {entry.dtype}",
        layers=run.layers(label),
        heads=run.heads(label),
        conditions=[name for name in run.conditions if run.has(label, name)],
    )


def _condition(run: Run, name: str) -> responses.ConditionFacts:
    colours = selection.condition_colours(run, run.conditions)
    label = selection.condition_label(run, name)
    inserts = run.study.condition(name).inserts
    seen = {each for model in run.models for each in seen_classes(run, model, name)}
    without = [each for each in run.token_sets if each not in seen]
    return responses.ConditionFacts(name=name, label=label, colour=colours[label], inserts=inserts, without=without)


def _class(run: Run, name: str) -> responses.Choice:
    label = selection.class_label(run, name)
    return responses.Choice(name=name, label=label, colour=selection.class_colours(run, run.token_sets)[label])


def _measures(run: Run) -> Iterator[responses.MeasureFacts]:
    groups = [group.name for group in run.groups]
    for name in run.token_sets:
        label = selection.class_label(run, name)
        yield responses.MeasureFacts(name=name, label=label, queries=groups, enrichment=True)
    for name in map_measures():
        measured = [group for group in groups if name not in unmeasured(run.study, group)]
        if measured:
            label = f"{name}: {title_of(name)}"
            yield responses.MeasureFacts(name=name, label=label, queries=measured, enrichment=False)


def _is_shown(run: Run, spec: FigureSpec) -> bool:
    """Whether a figure of the study can be drawn; it may be of a kind that is not installed any more."""
    try:
        return options_of(spec).among(run) is not None
    except AttnscopeError:
        return False


def _figure(spec: FigureSpec) -> responses.StudyFigure:
    lines = spec.model_dump(mode="json", exclude_defaults=True)
    return responses.StudyFigure(name=spec.name, kind=spec.kind, title=spec.title or spec.name, spec=lines)


def evidence(run: Run) -> list[responses.Section]:
    """The run's evidence card: as the report wrote it, or computed now."""
    if run.status == "finished" and is_reported(run.path):
        return sections_of(json.loads((run.path / EVIDENCE_DATA).read_text(encoding="utf-8")))
    return sections(evidence_card(run))


def comparisons(run: Run) -> list[responses.ComparisonTables]:
    """Every comparison that the study implies, as in the report."""
    return [
        responses.ComparisonTables(
            name=each.comparison.name,
            facts=facts_of(each),
            tables=[
                responses.ComparisonTable(
                    title=f"{queries}: {table.title}",
                    columns=list(table.columns),
                    rows=[list(row) for row in table.rows],
                    grayed=list(table.grayed),
                )
                for queries in run.queries
                for table in tables_of(each, queries)
            ],
        )
        for each in run.compare()
    ]
