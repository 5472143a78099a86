"""Interventions and scores in figures: their labels, and what a score is in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnscope.analysis.outcomes import controls_of, over_of, sides_with_outcomes
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.errors import AttnscopeError, near
from attnscope.figures import selection
from attnscope.figures.options import Options
from attnscope.study.consistency import Problem
from attnscope.study.interventions import InterventionSpec, Over, Score
from attnscope.study.schema import Study


@dataclass(frozen=True)
class ScoreWords:
    """A score in words."""

    name: str
    """As the subject of a sentence."""
    axis: str
    unit: str
    """With a space before it, or empty."""
    about: str
    """A sentence about what it is."""
    one_way: str = ""
    """Why its change is not tested, if it is not."""


SCORES: dict[Score, ScoreWords] = {
    "logprob": ScoreWords(
        "the log probability of the answer",
        "Change in log probability of the answer (nats)",
        " nats",
        "Log probability: natural logarithm, summed over the answer's tokens.",
    ),
    "accuracy": ScoreWords(
        "accuracy",
        "Change in accuracy (share of prompts)",
        "",
        "An answer is accurate if {accurate}.",
    ),
    "flips": ScoreWords(
        "the share of prompts that flip",
        "Share of prompts that flip",
        "",
        "A prompt flips if {flips}.",
        "not tested: there are no flips without an intervention",
    ),
    "kl": ScoreWords(
        "the KL divergence of the next token",
        "KL divergence of the next token (nats)",
        " nats",
        "KL divergence of the prediction of the answer's first token, without the intervention from with it.",
        "not tested: it is 0 without an intervention",
    ),
}


def score_words(score: str | None) -> ScoreWords:
    """Of a score that a table names; any table may name one of its own, or none."""
    known = next((words for name, words in SCORES.items() if name == score), None)
    return known or ScoreWords(score or "the score", score or "change", "", "")


def about_score(run: Run, score: Score) -> str:
    """A sentence about what a score of this run is."""
    if run.study.outcome is not None and run.study.outcome.choices is not None:
        words = {"accurate": "it is the likeliest of the choices", "flips": "another choice becomes the likeliest"}
    else:
        written = "always writing the likeliest token, would write"
        words = {
            "accurate": f"the model, {written} it",
            "flips": f"the model, {written} the answer with an intervention and not without, or the reverse",
        }
    return SCORES[score].about.format(**words)


def label_of(spec: InterventionSpec) -> str:
    return spec.label or spec.name


def control_of(run: Run, name: str) -> InterventionSpec | None:
    """The first control of an intervention, which figures show beside it."""
    return next(iter(controls_of(run, name)), None)


def shown_interventions(run: Run, names: Sequence[str] | None, over: Over | None) -> list[InterventionSpec]:
    """Those that sweep over this: the ones named, or all but controls."""
    specs = [spec for spec in run.study.interventions if not spec.is_none and over_of(run, spec) == over]
    return [spec for spec in specs if (spec.like is None if names is None else spec.name in names)]


def intervention_problems(study: Study, names: Sequence[str] | None, over: Over | None) -> Iterator[Problem]:
    """Interventions that a figure names and the study does not have, or that don't sweep over what it shows."""
    mine = [spec for spec in study.interventions if not spec.is_none and spec.like is None]
    if not mine:
        yield Problem(("kind",), "the study has no interventions", "interventions: [none, {name: ..., hide: {...}}]")
        return
    known = [spec.name for spec in mine if spec.over == over]
    what = "changes one thing" if over is None else f"sweeps over {over}"
    if not known:
        kinds = dict.fromkeys(f"over {spec.over}" if spec.over else "one change" for spec in mine)
        yield Problem(("kind",), f"no intervention {what}", f"what the study's interventions are: {', '.join(kinds)}")
    for place, name in enumerate(names or ()):
        if name not in known:
            what_is_wrong = f"there is no intervention '{name}' that {what}"
            yield Problem(("interventions", place), what_is_wrong, near(name, known))


def score_problems(study: Study, score: Score | None) -> Iterator[Problem]:
    scores = [] if study.outcome is None else study.outcome.scores
    if score is not None and score not in scores:
        yield Problem(("score",), f"the study's outcome has no score '{score}'", ", ".join(scores) or "outcome: scores")


def score_of(run: Run, score: Score | None) -> Score:
    """The one that a figure names, or the study's first."""
    return score or (run.study.outcome.scores[0] if run.study.outcome is not None else "logprob")


def conditions_with_outcomes(run: Run, names: Sequence[str]) -> list[str]:
    """Those of the conditions that the study intervenes under."""
    wanted = None if run.study.outcome is None else run.study.outcome.conditions
    return [name for name in names if wanted is None or name in wanted]


def sides_of(run: Run, options: Options) -> list[Side]:
    """The models and conditions that a figure shows and that were intervened in; refused if there is none."""
    labels, names = options.sides(run)
    shown = [side for side in sides_with_outcomes(run) if side.model in labels and side.condition in names]
    if not shown:
        raise AttnscopeError(
            "there are no outcomes of interventions to show",
            where=f"figure {options.name}",
            allowed="runs with a table 'outcomes', and conditions of the study's outcome",
            todo="run the study again, or choose other models and conditions",
        )
    return shown


def panel_title(run: Run, options: Options, side: Side, spec: InterventionSpec | None, *, many: bool) -> str:
    """What distinguishes a panel: the sweep, if there are several, and the side, if there are several."""
    sides = sides_of(run, options)
    where = selection.title(run, options, side.model, side.condition)
    if spec is None:
        return where
    return label_of(spec) if len(sides) == 1 else f"{label_of(spec)}, {where}" if many else where
