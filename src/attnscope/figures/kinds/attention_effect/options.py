"""What a figure of attention against effect may ask for."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from attnscope.analysis.run import Run
from attnscope.figures.interventions import conditions_with_outcomes, intervention_problems, score_problems
from attnscope.figures.options import MeasureOptions
from attnscope.study.consistency import Problem
from attnscope.study.interventions import Score
from attnscope.study.schema import Study


class AttentionEffectOptions(MeasureOptions):
    """A point per head: attention, by default on the study's first class, and what a sweep over heads does in it."""

    score: Score | None = Field(None, description="logprob, accuracy, flips or kl; by default the outcome's first.")
    intervention: str | None = Field(None, description="One that sweeps over heads; by default the first.")

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        named = None if self.intervention is None else [self.intervention]
        for problem in intervention_problems(study, named, "heads"):
            yield problem if problem.at[0] == "kind" else Problem(("intervention",), problem.what, problem.allowed)
        yield from score_problems(study, self.score)

    def conditions_of(self, run: Run) -> list[str]:
        return conditions_with_outcomes(run, super().conditions_of(run))
