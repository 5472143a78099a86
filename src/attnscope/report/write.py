"""A finished run -> its figures and its report, from its files alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from attnscope.analysis.cache import caching_results
from attnscope.analysis.head_kinds import scores
from attnscope.analysis.own_text import dependence_of
from attnscope.analysis.ranking import ranked_by_distance
from attnscope.analysis.run import Run
from attnscope.analysis.sides import empty_classes
from attnscope.errors import AttnscopeError, PluginError
from attnscope.figures.prose import as_json, markdown
from attnscope.figures.validation import options_of
from attnscope.figures.write import FILES, Figure, make_figure, write_figure
from attnscope.report.answer import answer
from attnscope.report.comparisons import write_comparisons
from attnscope.report.evidence import evidence_card, input_warnings
from attnscope.report.files import ANSWER, COMPARISONS, EVIDENCE, EVIDENCE_DATA, FIGURES, write_index
from attnscope.report.page import write_page


@dataclass(frozen=True)
class Reported:
    """What was written of a run."""

    page: Path
    figures: list[Figure]
    undrawn: dict[str, str]
    """Figures that can't be drawn, and why: the others are."""
    empty: list[str]
    """Classes that no token belongs to."""
    warnings: list[str]
    """Prompts that may not be the input a model was trained on, or not independent."""
    answer: list[str]
    """The answer to the study's question, in sentences."""


def report_run(path: Path | str) -> Reported:
    """Draw a run's figures and write its report again, from its files alone."""
    run = Run(path)
    with caching_results(run):
        return _report(run)


def _report(run: Run) -> Reported:
    figures: list[Figure] = []
    undrawn: dict[str, str] = {}
    for figure in run.study.figures:
        try:
            shown = options_of(figure).among(run)
            if shown is None:
                undrawn[figure.name] = "what it shows was not measured"
            else:
                figures.append(make_figure(run, shown))
        except PluginError:
            raise
        except AttnscopeError as error:
            undrawn[figure.name] = str(error)
    for drawn in figures:
        write_figure(drawn, run.path / FIGURES)
    for left in (run.path / FIGURES).glob("*.*"):
        if not any(left.name == f"{drawn.name}{ending}" for drawn in figures for ending in FILES):
            left.unlink()  # of a figure that the study no longer has, or that can't be drawn
    evidence = evidence_card(run)
    (run.path / EVIDENCE).write_text(markdown(evidence), encoding="utf-8")
    (run.path / EVIDENCE_DATA).write_text(json.dumps(as_json(evidence), ensure_ascii=False), encoding="utf-8")
    _look_ahead(run)
    compared = run.compare()
    if compared:
        write_comparisons(compared, run.path / COMPARISONS)
    again = run.manifest.command or f"attnscope run {run.path / 'study.yaml'} --out {run.path}"
    sentences = answer(run)
    (run.path / ANSWER).write_text(json.dumps(sentences, ensure_ascii=False, indent=1), encoding="utf-8")
    page = write_page(run, figures, undrawn, compared, evidence, sentences, again)
    write_index(run)
    warnings = [warning for model in run.models for warning in input_warnings(run, model)]
    copies = dependence_of(run)
    warnings += [copies] if copies else []
    return Reported(page, figures, undrawn, empty_classes(run), warnings, sentences)


def _look_ahead(run: Run) -> None:
    """Compute what a reader may ask for next: the scores of every head, and how far apart conditions move it."""
    for model in run.models:
        names = [name for name in run.conditions if run.has(model, name)]
        for queries in run.study.measure.queries:
            for name in names:
                scores(run, model, name, queries)
            if len(names) > 1:
                ranked_by_distance(run, model, queries, "visible", names[0], names[1])
