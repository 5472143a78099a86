"""What a figure's line in a study may ask for: the options that kinds of figure are made of.

A kind declares its options as a subclass of `Options`, put together from the groups below and its own. They are a part
of the study file: every key has a type and a description, a key of another kind is refused by name, and `problems`
finds what no single key can show, such as a class that the study does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from attnscope.analysis.run import Run
from attnscope.errors import near
from attnscope.measures.names import map_measures
from attnscope.spec import Whole
from attnscope.study.consistency import Problem, name_problems, unmeasured
from attnscope.study.schema import Asked, FigureSpec, Heads, Layers, Spec, Study
from attnscope.text.classes import OTHER


class Options(FigureSpec):
    """The options of one kind of figure, besides those that all kinds share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    takes_series: ClassVar[bool] = False
    """Whether `queries` may name a series of query groups, instead of one group."""
    shows_attention: ClassVar[bool] = True
    """Whether its numbers are of attention, so that what the study leaves out matters for them."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                known = {"key": str(key), "kind": str(data.get("kind")), "near": near(str(key), cls.model_fields)}
                raise PydanticCustomError("unknown_key", "{kind} has no option '{key}'", known)
        return data

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        """What it asks for that the study does not have. prompts: how many there are, once they have been read."""
        if self.queries in study.measure.series and not self.takes_series:
            what = f"'{self.queries}' is a series of query groups, and {self.kind} shows one group"
            yield Problem(("queries",), what, near(self.queries, study.measure.groups))

    def among(self, run: Run) -> Self | None:
        """The figure without models and conditions that the run does not have; None if nothing is left to show."""
        models, conditions = self.sides(run)
        return self if models and conditions else None

    def sides(self, run: Run) -> tuple[list[str], list[str]]:
        """The models and conditions of the run that are drawn, each model under each condition."""
        return self.models_of(run), self.conditions_of(run)

    def models_of(self, run: Run) -> list[str]:
        """A training's name stands for all its checkpoints; by default its first and its last are shown."""
        if self.models is None:
            return run.compared_models
        named = [each for label in self.models for each in run.families.get(label, [label])]
        return [label for label in dict.fromkeys(named) if label in run.models]

    def conditions_of(self, run: Run) -> list[str]:
        """Without placebos, unless the figure names them: they are nothing but a control's second draw."""
        drawn = [name for name in run.conditions if run.study.condition(name).redraws is None]
        return [name for name in self.conditions or drawn if name in run.conditions]

    def renamed(self, old: str, new: str) -> Self:
        """The same figure of a model that is called otherwise."""
        return self.model_copy(update={"models": swapped(self.models, old, new)})


def swapped(names: Sequence[str] | None, old: str, new: str) -> list[str] | None:
    return None if names is None else [new if name == old else name for name in names]


class ClassOptions(Options):
    """Of kinds that show classes of token."""

    classes: list[str] | None = Field(None, description="Names of classes, from the bottom up; by default all.")

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        yield from name_problems(self.classes or (), study.token_sets, ("classes",))


class HeadOptions(Options):
    """Of kinds that show some layers and heads, or the mean over them."""

    layers: Layers = Field("all", description="As in measure, among those measured.")
    heads: Heads = Field("all", description="all, or numbers, among those measured.")

    def asked(self, model: str) -> Asked:
        if self.models is not None and model not in self.models:
            return Asked()
        layers: Layers = self.layers
        if isinstance(layers, list):
            layers = [number - self.number_from for number in layers]
        heads = () if isinstance(self.heads, str) else [number - self.number_from for number in self.heads]
        return Asked(() if layers == "all" else (layers,), heads)


class MeasureOptions(Options):
    """Of kinds that show one number per head."""

    measure: str | list[str] | None = Field(
        None, description="A class, several classes summed, or a measure of heads such as sink or previous."
    )
    value: Literal["mass", "enrichment"] = Field(
        "mass", description="Of classes: their mass, or their mass relative to uniform attention."
    )

    @property
    def measures(self) -> list[str]:
        """What is summed; empty if the study leaves it open."""
        return [self.measure] if isinstance(self.measure, str) else list(dict.fromkeys(self.measure or ()))

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        hidden = unmeasured(study, self.queries)
        known = [name for name in (*study.token_sets, *study.quantities, *map_measures()) if name not in hidden]
        several = len(self.measures) > 1
        for measure in self.measures:
            if measure not in known:
                reason = f" ({hidden[measure]})" if measure in hidden else ""
                yield Problem(("measure",), f"there is no class or measure '{measure}'{reason}", near(measure, known))
            elif several and measure not in (*study.classes, OTHER):
                what = f"{measure} can't be added to others"
                yield Problem(("measure",), what, "classes alone can be summed: sets may overlap, others are no shares")


class OverOptions(Options):
    """Of kinds that show attention received, token by token."""

    over: Literal["visible", "all"] = Field(
        "visible", description="Mean over the queries that can see the token, or over all queries."
    )


class HeadSpec(Spec):
    """A head of a model."""

    model: str = Field(description="The model's label.")
    layer: Whole = Field(ge=0, description="From 0, or from 1 with number_from: 1.")
    head: Whole = Field(ge=0, description="From 0, or from 1 with number_from: 1.")
