"""Effects of interventions in a report: in the answer, as a section of the page, and as a table of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from attnscope.analysis.families import INTERVENTIONS
from attnscope.analysis.intervention_effects import intervention_effects
from attnscope.analysis.outcomes import sides_with_outcomes
from attnscope.analysis.run import Run
from attnscope.figures import effect_sentences, sentences
from attnscope.figures.interventions import SCORES, label_of, shown_interventions
from attnscope.figures.kinds.effect.options import OVER, By, EffectOptions
from attnscope.figures.kinds.effect.prose import statements
from attnscope.figures.kinds.effect.statistics import CONTROL, effect_rows, of_interventions
from attnscope.figures.prose import Block, Bullets, Paragraph, Section, Table, Text
from attnscope.places import writing
from attnscope.study.interventions import NONE, Score

FILE = "effects.csv"
BYS: tuple[By, ...] = ("intervention", "class", "layer", "head")
MOST = 6  # statements of the answer; the section has the rest
HEADING = "Effects of interventions"
NOTE = (
    "A change is the score with an intervention minus without, in the same prompt. A control changes as much of "
    f"something else. q is the false discovery rate {INTERVENTIONS}. Every place of every sweep is in "
    f"comparisons/{FILE}, with the placebo of each control: the control minus its second draw."
)
BESIDE = "Attention is where heads look; whether that matters for the answer is what interventions show."

COLUMNS = {
    "model": "the model's label",
    "condition": "the condition's name",
    "intervention": "the intervention's name",
    "layer": "in a sweep over layers, the first of the window; over heads, the head's",
    "head": "in a sweep over heads, the head",
    "token_class": "in a sweep over classes, the class that is hidden",
    "score": "logprob, accuracy, flips or kl",
    "kind": "change (from the model as it is), beyond (the change minus the control's) or placebo (a control minus its "
    "second draw)",
    "against": "what is subtracted: `none`, the control or the second draw",
    "n": "how many prompts have both",
    "clusters": "how many clusters these prompts are in; without clusters, how many different prompts",
    "effect": "mean within prompts",
    "low": "lower end of its 95 % interval",
    "high": "upper end of its 95 % interval",
    "size": "the effect in standard deviations of single prompts",
    "p": "studentised bootstrap over clusters of prompts, two-sided; empty if not tested",
    "q": "its false discovery rate among all of the same score and kind; empty if not tested",
    "least_q": "the smallest q that it alone can have",
    "same_q": "q of the test that it is within the outcome's margin; empty without one",
}
"""The columns of effects.csv: one row per model, condition, intervention, place of a sweep and kind of effect."""


def scores_of(run: Run) -> list[Score]:
    return [] if run.study.outcome is None or not run.has_outcomes else run.study.outcome.scores


def write_effects(run: Run, folder: Path) -> Path | None:
    """effects.csv in a folder; None for a run without interventions."""
    if not scores_of(run):
        return None
    with writing(folder, "the effects"):
        folder.mkdir(parents=True, exist_ok=True)
        table = pl.concat([intervention_effects(run, score) for score in scores_of(run)])
        table.select(list(COLUMNS)).write_csv(folder / FILE)
    return folder / FILE


def effects_in_words(run: Run) -> list[str]:
    """What interventions do to the study's first score, under the first condition that has outcomes: for the answer."""
    words: list[str] = []
    for score in scores_of(run)[:1]:
        sides = [side for side in sides_with_outcomes(run) if side.model in run.compared_models]
        for side in [each for each in sides if each.condition == sides[0].condition]:
            where = f"In {side.model}, " if len(run.compared_models) > 1 else ""
            for by, table in _tables(run, score, models=[side.model], conditions=[side.condition]):
                words += [f"{where}{each}" for each in _said(by, table)]
    return [*words[:MOST], *_more(len(words) - MOST)]


def _said(by: By, table: pl.DataFrame) -> Iterator[str]:
    """A sentence for each single intervention and each class of a sweep; one for every other sweep."""
    rows, controls = of_interventions(table).to_dicts(), table.filter(role=CONTROL).to_dicts()
    beside = {(row["panel"], row["place"]): row for row in controls}
    if by in ("intervention", "class"):
        for row in rows:
            what = f'"{row["intervention"]}"' + (f" on {row['place']}" if by == "class" else "")
            yield f"{what}: {effect_sentences.sentence(row, beside.get((row['panel'], row['place'])))}"
        return
    in_short = effect_sentences.heads if by == "head" else effect_sentences.windows
    for name in dict.fromkeys(row["intervention"] for row in rows):
        yield f'"{name}", {by} by {by}: {in_short([row for row in rows if row["intervention"] == name])}'


def _more(count: int) -> list[str]:
    return [f"{sentences.counted(count, 'more effect')}: see {HEADING.lower()}."] if count > 0 else []


def effects_section(run: Run) -> Section | None:
    """All interventions in sentences, sweeps in short; None for a run without any."""
    blocks: list[Block] = []
    for score in scores_of(run):
        texts: list[Text | Table] = [each for _, table in _tables(run, score) for each in statements(table)]
        bullets = tuple(each for each in texts if not isinstance(each, Table))
        tables = [each for each in texts if isinstance(each, Table)]
        if texts:
            inner: tuple[Block, ...] = (*((Bullets(bullets),) if bullets else ()), *tables)
            blocks.append(Section(SCORES[score].axis, inner))
    if not blocks:
        return None
    return Section(HEADING, (Paragraph(NOTE), *_impossible(run), *blocks))


def _impossible(run: Run) -> Iterator[Block]:
    """Interventions that could be made in no prompt."""
    made = set(intervention_effects(run, scores_of(run)[0])["intervention"])
    absent = [label_of(spec) for spec in run.study.interventions if spec.name not in made and spec.name != NONE]
    if absent:
        yield Paragraph(f"In no prompt could these be made: {sentences.listed(absent)}.")


def _tables(
    run: Run, score: Score, models: Sequence[str] | None = None, conditions: Sequence[str] | None = None
) -> Iterator[tuple[By, pl.DataFrame]]:
    """Single interventions first, then sweeps, as figures of effects have them."""
    for by in BYS:
        if not shown_interventions(run, None, OVER[by]):
            continue
        asked = {"by": by, "score": score, "models": models, "conditions": conditions}
        options = EffectOptions.model_validate({"name": "effects", "kind": "effect", **asked})
        table = effect_rows(run, options)
        if len(of_interventions(table)):
            yield by, table
