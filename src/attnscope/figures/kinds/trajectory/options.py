"""What a trajectory may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.analysis.run import Run
from attnscope.figures.options import ClassOptions, HeadOptions, MeasureOptions
from attnscope.study.consistency import Problem
from attnscope.study.schema import Study


class TrajectoryOptions(ClassOptions, MeasureOptions, HeadOptions):
    """Lines over the steps of a training (`checkpoints`) or over the query groups of a series such as {each: writing}:
    the mean over the layers and heads chosen. `queries` names the series.
    """

    takes_series: ClassVar[bool] = True

    lines: Literal["classes", "models"] | None = Field(
        None,
        description="A line per class, with a panel per training and condition; or a line per training and condition, "
        "with a panel per class. By default classes if there is one training, or model, under one condition.",
    )
    by: Literal["layer"] | None = Field(None, description="layer: a panel per layer, instead of the mean over layers.")

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        if not study.families and not study.measure.series:
            allowed = "models: [{label: tuned, checkpoints: out/checkpoint-*}], or measure: {queries: [{each: answer}]}"
            yield Problem(("kind",), "no model has checkpoints, and queries make no series", allowed)
        along = self.queries in study.measure.series or not study.families
        for place, label in enumerate(self.models or ()):
            if not along and label in [spec.label for spec in study.models if spec.family is None]:
                yield Problem(("models", place), f"'{label}' is not a training", f"one of {', '.join(study.families)}")

    def models_of(self, run: Run) -> list[str]:
        """All checkpoints, in the order of their steps; along a series, the models themselves."""
        if self.queries in run.series or not run.families:
            return super().models_of(run)
        chosen = super().models_of(run) if self.models is not None else run.models
        return [label for labels in run.families.values() for label in labels if label in chosen]
