"""What a figure of effects may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.analysis.run import Run
from attnscope.figures.interventions import conditions_with_outcomes, intervention_problems, score_problems
from attnscope.figures.options import Options
from attnscope.study.consistency import Problem
from attnscope.study.interventions import Over, Score
from attnscope.study.schema import Study

By = Literal["layer", "head", "intervention", "class"]
OVER: dict[By, Over | None] = {"layer": "layers", "head": "heads", "class": "classes", "intervention": None}


class EffectOptions(Options):
    """Lines over layers, a map of heads, or points for classes or interventions, each beside its control."""

    shows_attention: ClassVar[bool] = False

    by: By = Field(
        "intervention",
        description="layer, head and class: sweeps over them. intervention: those that sweep over nothing.",
    )
    score: Score | None = Field(None, description="logprob, accuracy, flips or kl; by default the outcome's first.")
    interventions: list[str] | None = Field(
        None, description="Names of interventions; by default all that fit. Controls are drawn beside their own."
    )

    @property
    def over(self) -> Over | None:
        return OVER[self.by]

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        yield from intervention_problems(study, self.interventions, self.over)
        yield from score_problems(study, self.score)
        if self.queries is not None:
            yield Problem(("queries",), "effects are of no query group", "interventions: [NAME]")

    def conditions_of(self, run: Run) -> list[str]:
        return conditions_with_outcomes(run, super().conditions_of(run))
