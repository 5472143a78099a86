"""The sections of a study file, as data: every key with its type and meaning. The reference page comes from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from attnscope.quantities import AnyQuantity
from attnscope.spec import NamedSpec, Real, Whole
from attnscope.spec import Spec as Spec
from attnscope.study.classes import ClassSpec as ClassSpec
from attnscope.study.classes import checked_rule
from attnscope.study.conditions import ConditionSpec as ConditionSpec
from attnscope.study.field_types import COLOUR as COLOUR
from attnscope.study.field_types import LINE as LINE
from attnscope.study.field_types import NAME as NAME
from attnscope.study.field_types import Colour, Line, Name, names_in_schema
from attnscope.study.headline import HeadlineSpec
from attnscope.study.interventions import InterventionSpec, OutcomeSpec, with_controls
from attnscope.study.layers import DepthsSpec as DepthsSpec
from attnscope.study.layers import Heads as Heads
from attnscope.study.layers import Layers as Layers
from attnscope.study.layers import layer_at as layer_at
from attnscope.study.sampling import Sample as Sample
from attnscope.text.classes import OTHER, PREFIX, REMOVED
from attnscope.text.query_rules import Queries, QueryRule, in_series, titles_of
from attnscope.text.sets import PROMPT_SETS

Dtype = Literal["float32", "bfloat16", "float16", "float64"]
_DTYPE = "By default float32 on a CPU if it fits into memory."
_DEVICE = "cpu, cuda, cuda:1, mps; by default the best available."
_DEVICE_MAP = "Spread a large model over devices: auto, balanced, ..."


class ModelSpec(NamedSpec):
    """One model of the study. An entry with `checkpoints` stands for several: see checkpoints."""

    label: Name = Field(description="Its name in tables and figures.")
    source: str = Field(
        description="A built-in name, `org/name` on the Hub (`@revision`), a folder or .gguf file (from where you are)."
    )
    adapter: str | None = Field(
        None, description="A PEFT adapter for it: a folder (from where you are), a Hub id or a built-in name."
    )
    revision: str | None = Field(None, description="Revision of a Hub model.")
    tokenizer: str | None = Field(
        None, description="Where its tokenizer comes from, if not with the weights: named like a source."
    )
    dtype: Dtype | None = Field(None, description=_DTYPE)
    device: str | None = Field(None, description=_DEVICE)
    device_map: str | None = Field(None, description=_DEVICE_MAP)
    colour: Colour | None = Field(None, description="The colour of its label in figures, such as '#1f77b4'.")
    family: Name | None = Field(
        None, description="The training that it is a checkpoint of; written for you by `checkpoints`."
    )
    step: Whole | None = Field(None, ge=0, description="How many steps of that training it has seen.")

    @property
    def loading(self) -> dict[str, Any]:
        """What `load` takes besides its source."""
        return self.model_dump(exclude={"label", "source", "colour", "family", "step"})

    @property
    def identity(self) -> dict[str, Any]:
        """What says which model it is, as plain data: without what only figures need."""
        return self.model_dump(mode="json", exclude={"colour", "family", "step"})

    @model_validator(mode="after")
    def _family_and_step(self) -> ModelSpec:
        if (self.family is None) != (self.step is None):
            raise PydanticCustomError("one_of", "a checkpoint has both a family and a step")
        return self

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"label": data, "source": data}
        if isinstance(data, dict) and "source" in data and "label" not in data:
            return {**data, "label": data["source"]}
        return data


class CheckpointsSpec(Spec):
    """Checkpoints of one training, as an entry of `models`: one model each, named by its step (`blocks step 200`).

    Adapters share their base, which is loaded once.
    """

    label: Name = Field(description="The name of the training in tables and figures.")
    checkpoints: str | list[str] | dict[Whole, str] | None = Field(
        None,
        description='A pattern of folders (from where you are) such as "out/checkpoint-*", a list of folders, or '
        "{step: folder}. Whole models or PEFT adapters; the step is that of trainer_state.json, or in the name.",
    )
    revisions: list[str] | dict[Whole, str] | None = Field(
        None, description="Revisions of a model on the Hub, such as [step1000, step2000], or {step: revision}."
    )
    source: str | None = Field(
        None,
        description="With checkpoints: what the training began with. It is then step 0, and the base of adapters, "
        "which otherwise name their own. With revisions: the model on the Hub (`org/name`).",
    )
    dtype: Dtype | None = Field(None, description=_DTYPE)
    device: str | None = Field(None, description=_DEVICE)
    device_map: str | None = Field(None, description=_DEVICE_MAP)
    colour: Colour | None = Field(None, description="The colour of its lines in figures, such as '#1f77b4'.")

    @field_validator("checkpoints", "revisions", mode="before")
    @classmethod
    def _folders_or_revisions(cls, data: Any, info: ValidationInfo) -> Any:
        pattern = info.field_name == "checkpoints"
        things = list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else [data]
        numbered = not isinstance(data, dict) or all(type(step) is int and step >= 0 for step in data)
        if not (isinstance(data, dict | list) or (pattern and isinstance(data, str))) or not numbered:
            things = [None]
        if not all(isinstance(each, str) and each for each in things):
            near = ("a pattern such as out/checkpoint-*, " if pattern else "") + "a list, or {step: name}"
            context = {"given": repr(data)[:60], "what": str(info.field_name), "near": near}
            raise PydanticCustomError("one_of", "{given} are no {what}", context)
        return data

    @model_validator(mode="after")
    def _one_of_them(self) -> CheckpointsSpec:
        if (self.checkpoints is None) == (self.revisions is None):
            raise PydanticCustomError("one_of", "give either checkpoints (folders) or revisions (of a Hub model)")
        if self.revisions is not None and (self.source is None or "@" in self.source):
            near = {"near": "source: org/name, without a revision"}
            raise PydanticCustomError("one_of", "revisions are those of a model on the Hub", near)
        return self


def _or_a_switch(schema: dict[str, Any]) -> None:
    """In the schema of a field: it may also be true or false."""
    schema["anyOf"] = [*schema["anyOf"], {"type": "boolean"}]


class AnswerSpec(Spec):
    """The answer after the prompt: given, or generated by the model, greedily or by sampling."""

    field: str | None = Field(None, description="The field of the prompts that contains it.")
    generate: Whole | None = Field(
        None,
        ge=1,
        le=4096,
        description="Let the model generate at most this many tokens; without sample, always the likeliest next one.",
    )
    sample: Sample | None = Field(
        None,
        description="Draw the tokens at random: true (from the model's own probabilities), or some of the keys below.",
        json_schema_extra=_or_a_switch,
    )
    seed: Whole | None = Field(None, ge=0, description="The seed of the draw; by default the study's seed.")

    @field_validator("sample", mode="before")
    @classmethod
    def _switched(cls, data: Any) -> Any:
        return (Sample() if data else None) if isinstance(data, bool) else data

    @model_validator(mode="after")
    def _one_of_them(self) -> AnswerSpec:
        if (self.field is None) == (self.generate is None):
            raise PydanticCustomError("one_of", "an answer is either given (field) or generated (generate)")
        if self.generate is None and self.sample is not None:
            raise PydanticCustomError("one_of", "only a generated answer can be sampled; add generate")
        if self.sample is None and self.seed is not None:
            raise PydanticCustomError("one_of", "nothing is drawn here; add sample, or remove seed")
        return self


class FieldSpec(NamedSpec):
    """Where a segment's text comes from: a column of the prompts, or the study itself."""

    column: str | None = Field(None, description="The column of the prompts; by default the one of the same name.")
    text: str | None = Field(None, min_length=1, description="A text that is the same in all prompts.")
    separator: str = Field("\n\n", description="What separates the items, if the column has lists.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"column": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _one_of_them(self) -> FieldSpec:
        if self.column is not None and self.text is not None:
            raise PydanticCustomError("one_of", "a field is either a column or a text")
        return self


class PromptsSpec(Spec):
    """Where prompts come from, and how they are laid out. Give one of items, file and set.

    If you give both chat and plain, models with a chat template get chat and the others plain.
    """

    items: list[dict[str, Any]] | None = Field(None, description="The prompts themselves, each a mapping of fields.")
    file: str | None = Field(
        None, description="A .jsonl, .csv or .parquet file, one prompt per row; from the study file."
    )
    set: str | None = Field(
        None, description="The name of a prompt set.", json_schema_extra=names_in_schema(PROMPT_SETS)
    )
    count: Whole | None = Field(
        None, ge=1, description="Take this many; by default all of them, or as many as the set says, mostly 40."
    )
    seed: Whole | None = Field(None, description="The seed of a set; by default the study's seed.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of a set.")
    id: str | None = Field(None, description="The field with the prompt's name; by default its number.")
    fields: dict[str, FieldSpec] = Field(
        default_factory=dict,
        description="Segments and the columns they come from, {segment: column}; or a text that all prompts share, "
        "{segment: {text: ...}}.",
    )
    chat: str | dict[Literal["system", "user", "assistant"], str] | None = Field(
        None,
        description="Messages for the model's chat template; a single line is the user message. {field} is a segment.",
    )
    plain: str | None = Field(
        None,
        description="The text itself, for models without a chat template, or for all if chat is not given. {field} is "
        "a segment.",
    )
    answer: AnswerSpec | None = Field(None, description="The answer that follows the prompt.")
    cluster: str | None = Field(
        None,
        description="The field that says which prompts belong together: those of one cluster are not independent. By "
        "default that of the set, if it has one; identical prompts always belong together.",
    )

    def source_of(self, field: str) -> FieldSpec:
        """Where a field comes from; by default the column of its name."""
        return self.fields.get(field) or FieldSpec(column=field)

    @model_validator(mode="after")
    def _one_of_each(self) -> PromptsSpec:
        given = [name for name in ("items", "file", "set") if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError("one_of", "give one of items, file and set")
        if self.items is not None and not self.items:
            raise PydanticCustomError("empty", "there are no prompts in items")
        return self


class MeasureSpec(Spec):
    """What is measured."""

    queries: list[Queries] = Field(
        default=["last"],
        min_length=1,
        description="The queries to average over: last, all, answer, writing, a segment, or a rule that makes groups, "
        "such as {each: answer}; see below.",
    )
    layers: Layers = Field("all", description="all, numbers from 0, or {depths: [0, 0.5, 1]}.")
    heads: Heads = Field("all", description="all, or numbers from 0.")
    measures: list[str] = Field(
        default=["received"],
        description="The names of the measures (see below); `received` is always included.",
    )

    @property
    def groups(self) -> list[str]:
        """The names of the query groups that belong to no series."""
        series = set(self.series)
        return [title for title in titles_of(self.queries) if title not in series]

    @property
    def series(self) -> list[str]:
        """The titles of the series of query groups."""
        return in_series(self.queries)

    @property
    def sources(self) -> dict[str, str]:
        """By title of each series: the group or segment that it is taken from."""
        series = set(self.series)
        rules = [each for each in self.queries if isinstance(each, QueryRule) and each.title in series]
        return {rule.title: rule.source[1] for rule in rules}

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
                context = {"key": key, "near": f"write measures: {names}" if data[key] else "leave it out"}
                raise PydanticCustomError("unknown_key", "'{key}' is no longer a key", context)
        return data

    @field_validator("queries", "measures", mode="before")
    @classmethod
    def _one_alone(cls, data: Any) -> Any:
        return [data] if isinstance(data, str | dict) else data

    @field_validator("queries", mode="after")
    @classmethod
    def _with_a_whole(cls, queries: list[str | QueryRule]) -> list[str | QueryRule]:
        """Comparisons and maps are of one group: if there are only series, also of what the first is taken from.

        It comes after all others, so that their places in the file stay theirs.
        """
        first = queries[0]
        whole = [] if isinstance(first, str) or len(in_series(queries)) < len(queries) else [first.source[1]]
        return [*queries, *whole]


@dataclass(frozen=True)
class Asked:
    """The layers and heads of one model that a figure names by number or depth, from 0."""

    layers: Sequence[Layers] = ()
    heads: Sequence[int] = ()


class FigureSpec(Spec):
    """A figure: its name and kind, what it shows, and its labels. By default it shows everything that was measured.

    These are the keys that all kinds share. A study is read before any kind of figure is known (kinds belong to
    `attnscope.figures`, which comes after), so the other keys are kept as written; `attnscope.figures.validation` turns
    the figure into its kind's own options, a subclass of this, before anything runs.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(description="The name of its files.", pattern=r"^[\w-][\w.-]*$", max_length=80)
    kind: str = Field(description="The kind of figure; each kind has options of its own, listed in docs/figures.md.")
    title: Line | None = Field(None, description="The title.")
    y: Line | None = Field(None, description="The title of the vertical axis.")
    models: list[str] | None = Field(
        None,
        description="The models to show, by label; that of a training stands for all its checkpoints. By default all, "
        "but of a training the first and the last checkpoint.",
    )
    conditions: list[str] | None = Field(None, description="The conditions to show, by name.")
    queries: str | None = Field(None, description="A query group; by default the first.")
    number_from: Literal[0, 1] = Field(0, description="Number layers and heads from 0, or from 1 as papers do.")

    def asked(self, model: str) -> Asked:
        """The layers and heads of a model that must have been measured for this figure."""
        return Asked()


REMOVED_WORDS = {"special": "special:", "first": "position:0"}
"""Short names of what is often left out."""


def _removable(written: str) -> str:
    """Refuse what is neither a short name nor a class rule."""
    if written in REMOVED_WORDS:
        return written
    if PREFIX.match(written) is None:  # a set of characters would be taken for a name
        near = f"{', '.join(REMOVED_WORDS)}, or a class rule such as segment:template"
        raise PydanticCustomError("one_of", "'{given}' names no tokens", {"given": written, "near": near})
    return checked_rule(written)


Removed = Annotated[str, AfterValidator(_removable)]


class Study(Spec):
    """A study: models, prompts, conditions, classes, what to measure, which figures."""

    title: Line | None = Field(None, description="The title of the report.")
    question: str | None = Field(None, description="The question the study asks, for the report.")
    seed: Whole = Field(0, ge=0, description="The seed of everything random.")
    models: list[ModelSpec] = Field(min_length=1, description="The models; checkpoints of a training in one entry.")
    prompts: PromptsSpec = Field(description="The prompts.")
    conditions: list[ConditionSpec] = Field(
        default=[ConditionSpec(name="none")], min_length=1, description="Conditions: edits of the prompt."
    )
    margin: Real | None = Field(
        None,
        gt=0,
        lt=1,
        description="The smallest change in a share of attention that matters. With it, heads are also tested for "
        "having no change: within the margin on either side (two one-sided tests).",
    )
    classes: dict[str, ClassSpec] = Field(default_factory=dict, description="Classes of tokens; `other` always exists.")
    also: dict[str, ClassSpec] = Field(
        default_factory=dict,
        description="Sets of tokens beside the classes. Each has all that its rule claims, whatever classes have, so "
        "sets may overlap; classes never do, and their shares add up.",
    )
    without: list[Removed] = Field(
        default_factory=list,
        description="Tokens to leave out: special (special tokens), first (the first token of the prompt) or a class "
        "rule such as segment:template. What attention they receive is reported as `removed`; masses, lines, strips "
        "and maps are shares of the rest.",
    )
    quantities: dict[str, AnyQuantity] = Field(
        default_factory=dict,
        description="Numbers derived from what classes and sets receive, such as a lookback ratio. Maps, trajectories "
        "and comparisons have them by name.",
    )
    measure: MeasureSpec = Field(default_factory=lambda: MeasureSpec(), description="What is measured.")
    figures: list[SerializeAsAny[FigureSpec]] = Field(default_factory=list, description="The figures.")
    interventions: list[InterventionSpec] = Field(
        default_factory=list,
        description="Changes of attention while the model runs, whose effect on the answer is measured. What attention "
        "is measured stays that of the model as it is.",
    )
    outcome: OutcomeSpec | None = Field(None, description="What shows whether interventions matter.")
    headline: list[HeadlineSpec] = Field(
        default_factory=list,
        description="What the answer is about, in order. By default it is about the first map of a difference.",
    )

    @field_validator("conditions", mode="after")
    @classmethod
    def _with_placebos(cls, conditions: list[ConditionSpec]) -> list[ConditionSpec]:
        """After all others, so that their places in the file stay theirs."""
        drawn = {spec.redraws for spec in conditions}
        again = [spec for spec in conditions if spec.control == "redraw" and spec.name not in drawn]
        return [*conditions, *(spec.redrawn() for spec in again)]

    @field_validator("interventions", mode="after")
    @classmethod
    def _with_controls(cls, interventions: list[InterventionSpec]) -> list[InterventionSpec]:
        """After all others, so that their places in the file stay theirs."""
        return with_controls(interventions)

    @field_validator("without", mode="before")
    @classmethod
    def _one_removed(cls, data: Any) -> Any:
        return [data] if isinstance(data, str) else data

    @property
    def rules(self) -> dict[str, str]:
        """The rule of each class, as text."""
        return {name: spec.rule for name, spec in self.classes.items()}

    @property
    def set_rules(self) -> dict[str, str]:
        """The rule of each set beside the classes, as text."""
        return {name: spec.rule for name, spec in self.also.items()}

    @property
    def token_sets(self) -> list[str]:
        """Everything that has a mass: the classes, `other`, the sets beside them, `removed` if tokens are left out."""
        return [*self.classes, OTHER, *self.also, *([REMOVED] if self.without else [])]

    @property
    def removed_rules(self) -> list[str]:
        """The rules of the tokens that are left out."""
        return [REMOVED_WORDS.get(each, each) for each in self.without]

    @property
    def families(self) -> list[str]:
        """The trainings that some of the models are checkpoints of."""
        return list(dict.fromkeys(spec.family for spec in self.models if spec.family is not None))

    def condition(self, name: str) -> ConditionSpec:
        return next(spec for spec in self.conditions if spec.name == name)

    def intervention(self, name: str) -> InterventionSpec:
        return next(spec for spec in self.interventions if spec.name == name)

    def model(self, label: str) -> ModelSpec:
        return next(spec for spec in self.models if spec.label == label)
