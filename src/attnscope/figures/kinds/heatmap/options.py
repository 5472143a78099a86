"""What a map of heads may ask for: a measure, or its change between two conditions or two models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field

from attnscope.analysis.run import Run
from attnscope.errors import near
from attnscope.figures.options import HeadOptions, MeasureOptions, swapped
from attnscope.study.consistency import Problem
from attnscope.study.schema import Study


class HeatmapOptions(MeasureOptions, HeadOptions):
    """A map of all heads; by default of the study's first class."""

    difference: list[str] | None = Field(
        None, min_length=2, max_length=2, description="Two conditions or two models: the second minus the first."
    )
    sort: Literal["depth", "effect"] = Field(
        "depth", description="Heads by number, or those of each layer from the strongest down."
    )

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        if self.difference is None:
            return
        labels, names = [model.label for model in study.models], [condition.name for condition in study.conditions]
        for place, word in enumerate(self.difference):
            if word not in (*labels, *names):
                what = f"there is no model or condition '{word}'"
                yield Problem(("difference", place), what, near(word, [*labels, *names]))
        one, two = self.difference
        if one == two or not ({one, two} <= set(labels) or {one, two} <= set(names)):
            yield Problem(("difference",), f"'{one}' and '{two}' can't be compared", "two conditions, or two models")

    def among(self, run: Run) -> Self | None:
        if any(name not in (*run.models, *run.conditions) for name in self.difference or ()):
            return None
        return self if self.models_of(run) and self.conditions_of(run) else None

    def sides(self, run: Run) -> tuple[list[str], list[str]]:
        if self.difference is None:
            return super().sides(run)
        if self.difference[0] in run.conditions:
            return self.models_of(run), self.difference
        return self.difference, self.conditions_of(run)

    def renamed(self, old: str, new: str) -> Self:
        return super().renamed(old, new).model_copy(update={"difference": swapped(self.difference, old, new)})
