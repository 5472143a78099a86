"""The parts of a study file, as data: every key, its type, its meaning. The reference page is made from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SerializeAsAny, field_validator, model_validator
from pydantic_core import PydanticCustomError

from attnscope.spec import NamedSpec
from attnscope.spec import Spec as Spec
from attnscope.study.classes import ClassSpec as ClassSpec
from attnscope.study.conditions import ConditionSpec as ConditionSpec
from attnscope.study.field_types import COLOUR as COLOUR
from attnscope.study.field_types import LINE as LINE
from attnscope.study.field_types import Colour, Line, names_in_schema
from attnscope.text.groups import GROUPS
from attnscope.text.sets import PROMPT_SETS


class ModelSpec(NamedSpec):
    """One model of the study."""

    label: Line = Field(description="Its name in tables and figures.")
    source: str = Field(
        description="A built-in name, `org/name` on the Hub (`@revision`), a folder or .gguf file (from where you are)."
    )
    adapter: str | None = Field(
        None, description="A PEFT adapter to put on it: a folder (from where you are), a Hub id or a built-in name."
    )
    revision: str | None = Field(None, description="Revision of a Hub model.")
    dtype: Literal["float32", "bfloat16", "float16", "float64"] | None = Field(
        None, description="By default float32 on a CPU if it fits."
    )
    device: str | None = Field(None, description="cpu, cuda, cuda:1, mps; by default the best there is.")
    device_map: str | None = Field(None, description="Spread a large model over devices: auto, balanced, ...")
    colour: Colour | None = Field(None, description="Of its label in figures, such as '#1f77b4'.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"label": data, "source": data}
        if isinstance(data, dict) and "source" in data and "label" not in data:
            return {**data, "label": data["source"]}
        return data


class AnswerSpec(Spec):
    """The answer after the prompt: given, or written by the model."""

    field: str | None = Field(None, description="The prompts' field that holds it.")
    generate: int | None = Field(
        None, ge=1, le=4096, description="Let the model write at most so many tokens, always the likeliest next."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> AnswerSpec:
        if (self.field is None) == (self.generate is None):
            raise PydanticCustomError("one_of", "an answer is either given (field) or generated (generate)")
        return self


class PromptsSpec(Spec):
    """Where prompts come from, and how they are put before a model. One of items, file and set.

    With both chat and plain, models that have a chat template get chat and the others plain.
    """

    items: list[dict[str, Any]] | None = Field(None, description="The prompts themselves, each a mapping of fields.")
    file: str | None = Field(None, description="A .jsonl, .csv or .parquet file, one prompt a row; from the study's.")
    set: str | None = Field(
        None, description="A set of prompts, by name.", json_schema_extra=names_in_schema(PROMPT_SETS)
    )
    count: int | None = Field(None, ge=1, description="Take so many; by default all, of a generated set 40.")
    seed: int | None = Field(None, description="Of a generated set; by default the study's seed.")
    options: dict[str, Any] = Field(default_factory=dict, description="Of a generated set.")
    id: str | None = Field(None, description="The field that names a prompt; by default its number.")
    fields: dict[str, str] = Field(
        default_factory=dict, description="Segments made of the prompts' columns: {segment: column}."
    )
    chat: str | dict[Literal["system", "user", "assistant"], str] | None = Field(
        None,
        description="Messages for the model's chat template; a single line is the user's. {field} is a segment.",
    )
    plain: str | None = Field(
        None,
        description="The text itself, for models without a chat template, or for all if chat is not given. {field} is "
        "a segment.",
    )
    answer: AnswerSpec | None = Field(None, description="The answer that follows the prompt.")

    @model_validator(mode="after")
    def _one_of_each(self) -> PromptsSpec:
        given = [name for name in ("items", "file", "set") if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError("one_of", "prompts come from one of items, file and set")
        if self.items is not None and not self.items:
            raise PydanticCustomError("empty", "there are no prompts in items")
        return self


class DepthsSpec(Spec):
    """Layers by relative depth, so that one study fits models of different sizes."""

    depths: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        min_length=1, description="0 is the first layer, 1 the last; 16/28 of 28 layers is layer 16."
    )


def layer_at(depth: float, layers: int) -> int:
    """The layer at a relative depth of a model of so many."""
    return min(layers - 1, int(depth * layers + 1e-9))


Numbers = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Layers = Literal["all"] | DepthsSpec | Numbers
Heads = Literal["all"] | Numbers


class MeasureSpec(Spec):
    """What is measured."""

    queries: list[str] = Field(
        default=["last"],
        min_length=1,
        description="Whose attention: last, all, answer, another query group, or a segment's name.",
        json_schema_extra=names_in_schema(GROUPS, closed=False),
    )
    layers: Layers = Field("all", description="all, numbers from 0, or {depths: [0, 0.5, 1]}.")
    heads: Heads = Field("all", description="all, or numbers from 0.")
    measures: list[str] = Field(
        default=["received"],
        description="What is measured, by name (see below); `received` always is.",
    )

    @property
    def all_measures(self) -> list[str]:
        """The names of all measures, `received` first."""
        return list(dict.fromkeys(["received", *self.measures]))

    @model_validator(mode="before")
    @classmethod
    def _former_keys(cls, data: Any) -> Any:
        former = {"entropy": "[entropy]", "patterns": "[previous, next, repeated, induction, local]"}
        for key, names in former.items() if isinstance(data, dict) else ():
            if key in data:
                known = {"key": key, "near": f"write measures: {names}" if data[key] else "leave it out"}
                raise PydanticCustomError("unknown_key", "'{key}' is no longer a key", known)
        return data

    @field_validator("queries", "measures", mode="before")
    @classmethod
    def _one_alone(cls, data: Any) -> Any:
        return [data] if isinstance(data, str) else data


@dataclass(frozen=True)
class Asked:
    """Layers and heads of one model that a figure names by number or depth, numbered from 0."""

    layers: Sequence[Layers] = ()
    heads: Sequence[int] = ()


class FigureSpec(Spec):
    """A figure: its name and kind, what it shows, what it calls things. By default it shows all that was measured.

    These are the keys that all kinds share. A study is read before any kind of figure is known (kinds belong to
    `attnscope.figures`, which comes after), so the other keys are kept as written; `attnscope.figures.validation` turns
    the figure into its kind's own options, a subclass of this, before anything runs.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(description="Name of its files.", pattern=r"^[\w-][\w.-]*$", max_length=80)
    kind: str = Field(description="The kind of figure; each kind has options of its own, listed in docs/figures.md.")
    title: Line | None = Field(None, description="Title above it.")
    y: Line | None = Field(None, description="Title of the vertical axis.")
    models: list[str] | None = Field(None, description="Labels of models.")
    conditions: list[str] | None = Field(None, description="Names of conditions.")
    queries: str | None = Field(None, description="A query group; by default the first.")
    number_from: Literal[0, 1] = Field(0, description="Number layers and heads from 0, or from 1 as papers do.")

    def asked(self, model: str) -> Asked:
        """The layers and heads of a model that must have been measured for this figure."""
        return Asked()


class Study(Spec):
    """A study: models, prompts, conditions, classes, what to measure, which figures."""

    title: Line | None = Field(None, description="Of the report.")
    question: str | None = Field(None, description="What the study asks, for the report.")
    seed: int = Field(0, ge=0, description="Of all that is random.")
    models: list[ModelSpec] = Field(min_length=1, description="The models.")
    prompts: PromptsSpec = Field(description="The prompts.")
    conditions: list[ConditionSpec] = Field(
        default=[ConditionSpec(name="none")], min_length=1, description="Edits of the prompt."
    )
    classes: dict[str, ClassSpec] = Field(default_factory=dict, description="Kinds of token; `other` is always there.")
    measure: MeasureSpec = Field(default_factory=lambda: MeasureSpec(), description="What is measured.")
    figures: list[SerializeAsAny[FigureSpec]] = Field(default_factory=list, description="What is drawn.")

    @property
    def rules(self) -> dict[str, str]:
        """Classes as membership takes them."""
        return {name: part.rule for name, part in self.classes.items()}

    def condition(self, name: str) -> ConditionSpec:
        return next(part for part in self.conditions if part.name == name)
