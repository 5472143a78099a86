"""The parts of a study file, as data: every key, its type, its meaning. The reference page is made from these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import regex
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

from attnscope.edits.sources import sources
from attnscope.edits.sources.source import Source
from attnscope.errors import near
from attnscope.text.classes import CHARACTERS, REGEX, SEGMENT, SPECIAL, WITHIN, plain_rule, split_within

COLOUR = r"^#[0-9a-fA-F]{3}([0-9a-fA-F]{3})?$"
LINE = r"^[^\x00-\x1f\x7f\u2028\u2029]+$"
Line = Annotated[str, Field(pattern=LINE)]
"""Text on one line."""
Colour = Annotated[str, Field(pattern=COLOUR)]
"""Such as '#ff7f0e'."""


class Spec(BaseModel):
    """A mapping of a study file; a key it doesn't know is refused with the nearest that it does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    known = {"key": str(key), "near": near(str(key), cls.model_fields)}
                    raise PydanticCustomError("unknown_key", "unknown key '{key}'", known)
        return data


class ModelSpec(Spec):
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
    set: str | None = Field(None, description="A bundled set: blocks, problems, sentences.")
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


def _source_key(data: Any) -> str | None:
    if isinstance(data, Source):
        return str(data.key)
    known = sources()
    if isinstance(data, dict):
        named = [key for key in data if key in known]
        if len(named) == 1:
            return str(named[0])
    return None


def _insertion() -> Any:
    kinds = [Annotated[each, Tag(key)] for key, each in sources().items()]
    made: Any = kinds[0]
    for kind in kinds[1:]:
        made = made | kind
    return Annotated[made, Discriminator(_source_key)]


class ConditionSpec(Spec):
    """An edit of the base prompt; without `insert`, the base prompt itself."""

    name: Line = Field(description="Its name in tables and figures.")
    label: Line | None = Field(None, description="What figures call it; by default its name.")
    colour: Colour | None = Field(None, description="Of its line or bar, such as '#ff7f0e'.")
    insert: _insertion() | None = Field(None, description="The text to insert: one source.")  # type: ignore[valid-type]
    before: str | None = Field(None, description="Insert right before this segment.")
    after: str | None = Field(None, description="Insert right after this segment.")
    separator: str = Field("\n", description="Between the insertion and the segment; counted as inserted.")
    times: int | None = Field(None, ge=1, description="Of a repeated string: how often, whatever tokens that makes.")
    tokens: int | None = Field(None, ge=1, description="Exactly so many tokens, as the model's tokenizer counts.")
    match: str | None = Field(None, description="As many tokens as this condition really inserts, prompt by prompt.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _whole(self) -> ConditionSpec:
        lengths = [name for name in ("times", "tokens", "match") if getattr(self, name) is not None]
        if self.insert is None:
            if lengths or self.before or self.after:
                raise PydanticCustomError("one_of", "there is nothing to insert: add insert, or leave its place out")
            return self
        if (self.before is None) == (self.after is None):
            raise PydanticCustomError("one_of", "an insertion goes before one segment or after one")
        if len(lengths) > 1:
            raise PydanticCustomError("one_of", "a length is one of times, tokens and match")
        if self.times is not None and self.insert.key != "repeat":
            raise PydanticCustomError("one_of", "times is for a repeated string; use tokens or match")
        if not lengths and self.insert.key in ("repeat", "sentence", "random_tokens"):
            raise PydanticCustomError("one_of", "how long is it to be: add times, tokens or match")
        return self


class ClassSpec(Spec):
    """A kind of token, by one of four rules."""

    characters: str | None = Field(None, min_length=1, description="Any of these characters.")
    regex: str | None = Field(None, min_length=1, description="What this pattern matches in the text.")
    segment: str | None = Field(None, description="A part of the prompt; `inserted`, `answer` and `template` are too.")
    special: Literal[True] | Annotated[str, Field(min_length=1)] | None = Field(
        None, description="The model's special tokens: all (true), or those of one name, such as '[SEP]'."
    )
    within: str | None = Field(None, description="Of characters or regex: only in this segment.")
    label: Line | None = Field(None, description="What figures call it; by default its name.")
    colour: Colour | None = Field(None, description="Of its segments and lines.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if data is None:
            raise PydanticCustomError("unquoted", "this class is empty; an unquoted # begins a comment, so write '#'")
        if not isinstance(data, str):
            return data
        within, rule = split_within(data)
        for key, mark in (("regex", REGEX), ("segment", SEGMENT), ("special", SPECIAL)):
            if rule.startswith(mark):
                return {key: rule.removeprefix(mark) or True, "within": within}
        return {"characters": rule.removeprefix(CHARACTERS), "within": within}

    @model_validator(mode="after")
    def _one_rule(self) -> ClassSpec:
        given = [name for name in ("characters", "regex", "segment", "special") if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError("one_of", "a class has one rule: characters, regex, segment or special")
        if self.within is not None and given[0] not in ("characters", "regex"):
            raise PydanticCustomError("one_of", "within goes with characters or regex")
        if self.regex is not None:
            try:
                regex.compile(self.regex)
            except regex.error as error:
                raise PydanticCustomError("one_of", "the pattern can't be read: {why}", {"why": str(error)}) from error
        return self

    @property
    def rule(self) -> str:
        """As `attnscope measure --class` takes it."""
        if self.segment is not None:
            return f"{SEGMENT}{self.segment}"
        if self.special is not None:
            return SPECIAL if self.special is True else f"{SPECIAL}{self.special}"
        rule = plain_rule(str(self.characters)) if self.regex is None else f"{REGEX}{self.regex}"
        return rule if self.within is None else f"{WITHIN}{self.within}:{rule}"


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
TOP = r"^top [1-9]\d{0,2} by effect$"
Top = Annotated[str, Field(pattern=TOP)]
"""Such as 'top 6 by effect'."""


class MeasureSpec(Spec):
    """What is measured."""

    queries: list[str] = Field(
        default=["last"], min_length=1, description="Whose attention: last, all, a segment's name, answer."
    )
    layers: Layers = Field("all", description="all, numbers from 0, or {depths: [0, 0.5, 1]}.")
    heads: Heads = Field("all", description="all, or numbers from 0.")
    measures: list[str] = Field(
        default=["received"],
        description="What is measured, by name (see below); `received` always is.",
    )

    @property
    def measured(self) -> list[str]:
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


class HeadSpec(Spec):
    """A head of a model."""

    model: str = Field(description="The model's label.")
    layer: int = Field(ge=0, description="From 0, or from 1 with number_from: 1.")
    head: int = Field(ge=0, description="From 0, or from 1 with number_from: 1.")


class PanelSpec(HeadSpec):
    """One panel of a line chart: a head, and others drawn over its tokens."""

    also: list[HeadSpec] = Field(
        default_factory=list,
        description="Other heads in the same panel; of another model, its tokens are matched by their characters.",
    )

    @property
    def places(self) -> list[HeadSpec]:
        """All its heads."""
        return [self, *self.also]


class FigureSpec(Spec):
    """A figure: its kind, what it shows, what it calls things. By default it shows all that was measured."""

    name: str = Field(description="Of its files.", pattern=r"^[\w-][\w.-]*$", max_length=80)
    kind: str = Field(description="bars, lines, heatmap, strip, spread or parts.")
    title: Line | None = Field(None, description="Above it.")
    y: Line | None = Field(None, description="Title of the vertical axis.")
    models: list[str] | None = Field(None, description="Labels of models.")
    conditions: list[str] | None = Field(None, description="Names of conditions.")
    queries: str | None = Field(None, description="A query group; by default the first.")
    classes: list[str] | None = Field(None, description="Names of classes, from the bottom up.")
    layers: Layers = Field("all", description="As in measure, among those measured.")
    heads: Heads | Top = Field(
        "all", description="Heads to take the mean over; of lines also `top 6 by effect`: a panel for each of these."
    )
    panels: list[PanelSpec] | None = Field(None, description="Of lines: one a head.")
    form: Literal["shared", "full", "both"] = Field(
        "both", description="Of lines: over tokens all conditions share, over the whole sequence, or both."
    )
    over: Literal["visible", "all"] = Field(
        "visible", description="Of lines: mean over the queries that can see the key, or over all queries."
    )
    measure: str | list[str] | None = Field(
        None,
        description="Of heatmap and spread: a class, several of them summed, or one of sink, previous, next, "
        "repeated, induction, local, uniform, entropy, kept, moved, taken.",
    )
    value: Literal["mass", "enrichment"] = Field(
        "mass", description="Of a heatmap or spread of classes: their mass, or how many times that of a uniform gaze."
    )
    difference: list[str] | None = Field(
        None, min_length=2, max_length=2, description="Of heatmap: two conditions or two models, second less first."
    )
    sort: Literal["depth", "effect"] = Field(
        "depth", description="Of heatmap: heads by number, or those of each layer from the strongest down."
    )
    prompt: int | None = Field(None, ge=0, description="Of strip: which prompt; by default the first measured.")
    number_from: Literal[0, 1] = Field(0, description="Layers and heads are numbered from 0, or from 1 as in papers.")

    @field_validator("heads", mode="before")
    @classmethod
    def _chosen(cls, data: Any) -> Any:
        if isinstance(data, str) and data != "all" and not regex.fullmatch(TOP, data):
            what = "'{given}' is no choice of heads; write all, numbers, or 'top 6 by effect'"
            raise PydanticCustomError("one_of", what, {"given": data})
        return data

    @property
    def top(self) -> int | None:
        """How many heads are wanted by their effect, if they are."""
        return int(self.heads.split()[1]) if isinstance(self.heads, str) and self.heads != "all" else None

    @property
    def measures(self) -> list[str]:
        """What a heatmap shows the sum of; empty if the study leaves it open."""
        return [self.measure] if isinstance(self.measure, str) else list(dict.fromkeys(self.measure or ()))


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
    figures: list[FigureSpec] = Field(default_factory=list, description="What is drawn.")

    @property
    def rules(self) -> dict[str, str]:
        """Classes as membership takes them."""
        return {name: part.rule for name, part in self.classes.items()}

    def condition(self, name: str) -> ConditionSpec:
        return next(part for part in self.conditions if part.name == name)
