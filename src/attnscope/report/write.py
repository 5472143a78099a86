"""A finished run -> its figures and its report, from its files alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from attnscope.analysis.cache import caching_results
from attnscope.analysis.head_kinds import scores
from attnscope.analysis.own_text import dependence_of
from attnscope.analysis.ranking import ranked_by_distance
from attnscope.analysis.run import ChangedError, Run
from attnscope.clock import Clock
from attnscope.errors import AttnscopeError, StoppingError
from attnscope.figures import KINDS
from attnscope.figures.prose import as_json, markdown
from attnscope.figures.validation import options_of
from attnscope.figures.write import Figure, make_figure, write_figure
from attnscope.places import writing
from attnscope.report.answer import answer
from attnscope.report.comparisons import write_comparisons
from attnscope.report.effects import write_effects
from attnscope.report.empty import empty_in_words
from attnscope.report.evidence import evidence_card, input_warnings
from attnscope.report.files import ANSWER, COMPARISONS, EVIDENCE, EVIDENCE_DATA, FIGURES, PAGE, write_index
from attnscope.report.page import write_page
from attnscope.runs.evidence import Level
from attnscope.runs.integrity import DamagedError
from attnscope.runs.manifest import Timings, without_packages


@dataclass(frozen=True)
class Reported:
    """What was written of a run."""

    page: Path
    figures: list[Figure]
    undrawn: dict[str, str]
    """Figures that can't be drawn, and why: the others are."""
    empty: dict[str, str]
    """Classes without a token that the queries see, and why."""
    warnings: list[str]
    """Prompts that may not be the input a model was trained on, or not independent."""
    answer: list[str]
    """The answer to the study's question, in sentences."""
    timings: Timings
    """Of the command, as the evidence shows them."""
    evidence: Level
    """How much of it there is."""


def report_run(path: Path | str, clock: Clock | None = None) -> Reported:
    """Draw a run's figures and write its report again, from its files alone.

    clock: that of the command which measured the run; the evidence then has the time of the figures too.
    """
    run = Run(path)
    with writing(run.path, "the report"):
        workshop = Path(mkdtemp(prefix=".report.partial-", dir=run.path))
        try:
            with caching_results(run), (clock or Clock()).phase("figures"):
                return _report(run, workshop, clock)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


def _report(run: Run, workshop: Path, clock: Clock | None) -> Reported:
    """workshop: an empty folder; its files take their places once all of them are written."""
    figures: list[Figure] = []
    undrawn: dict[str, str] = {}
    for figure in run.study.figures:
        try:
            shown = options_of(figure).among(run)
            if shown is None:
                undrawn[figure.name] = "what it shows was not measured"
            else:
                figures.append(make_figure(run, shown))
        except (StoppingError, DamagedError, ChangedError):
            raise
        except AttnscopeError as error:
            if figure.kind not in KINDS.members:
                raise without_packages(run.path, run.manifest.plugins, error.what) or error from error
            undrawn[figure.name] = str(error)
    for drawn in figures:
        write_figure(drawn, workshop / FIGURES)
    _look_ahead(run)
    compared = run.compare()
    if compared:
        write_comparisons(compared, workshop / COMPARISONS)
    write_effects(run, workshop / COMPARISONS)
    again = run.manifest.command or f"attnscope run {run.path / 'study.yaml'} --out {run.path}"
    sentences = answer(run)
    (workshop / ANSWER).write_text(json.dumps(sentences, ensure_ascii=False, indent=1), encoding="utf-8")
    timings = _timings(run.manifest.timings, clock)  # nearly at the end: what comes now takes no time
    evidence = evidence_card(run, timings)
    (workshop / EVIDENCE).write_text(markdown(evidence), encoding="utf-8")
    (workshop / EVIDENCE_DATA).write_text(json.dumps(as_json(evidence), ensure_ascii=False), encoding="utf-8")
    write_page(run, figures, undrawn, compared, evidence, sentences, again, workshop)
    warnings = [warning for model in run.models for warning in input_warnings(run, model)]
    copies = dependence_of(run)
    warnings += [copies] if copies else []
    reported = Reported(
        run.path / PAGE, figures, undrawn, empty_in_words(run), warnings, sentences, timings, run.manifest.evidence
    )
    _take_place(workshop, run.path)
    write_index(run)
    return reported


def _timings(known: Timings, clock: Clock | None) -> Timings:
    """What the command has spent so far; as the manifest has it, if this is another command."""
    if clock is None:
        return known
    phases = {name: round(seconds, 3) for name, seconds in clock.phases.items()}
    return known.model_copy(update={"phases": phases, "seconds": round(clock.seconds, 3)})


def _take_place(workshop: Path, folder: Path) -> None:
    """Move what was written into a run's folder, and remove figures that were not drawn this time."""
    written = [path.relative_to(workshop) for path in workshop.rglob("*") if path.is_file()]
    for name in written:
        (folder / name).parent.mkdir(exist_ok=True)
        (workshop / name).replace(folder / name)
    for left in (folder / FIGURES).glob("*.*"):
        if left.is_file() and left.relative_to(folder) not in written:
            left.unlink()


def _look_ahead(run: Run) -> None:
    """Compute what a reader may ask for next: the scores of every head, and how far apart conditions move it."""
    for model in run.compared_models:
        names = [name for name in run.conditions if run.has(model, name)]
        for queries in run.queries:
            for name in names:
                scores(run, model, name, queries)
            if len(names) > 1:
                ranked_by_distance(run, model, queries, "visible", names[0], names[1])
