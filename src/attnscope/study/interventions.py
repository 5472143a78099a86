"""Interventions in a study file: changes of attention while a model runs, and the answers that show what they do.

What an intervention changes is written as attention edits (`attnscope.edits.attention`), whose layers and heads may
depend on the model: layers by depth, heads by rank. A control changes as much of something else; it is drawn twice, so
that there is a placebo beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.hide import Hide
from attnscope.edits.attention.patch import Patch
from attnscope.errors import near
from attnscope.spec import NamedSpec, Real, Spec, Whole, refuse_unknown_keys
from attnscope.study.borrowed import MEAN, PATCH, RESAMPLE, Borrowed
from attnscope.study.field_types import Colour, Line, Name
from attnscope.study.layers import Band
from attnscope.text.groups.writing import WRITING

NONE = "none"
CONTROL, REDRAWN = "{} (control)", "{} (placebo)"
RANDOM, MATCHED = "random", "matched"
Draw = Literal["random", "matched"]
Score = Literal["logprob", "accuracy", "flips", "kl"]
Over = Literal["layers", "heads", "classes"]

_TOP = re.compile(r"top (?P<top>[0-9]{1,6}) by (?P<by>.+)")
_LIKE = re.compile(r"(?:like )?(?P<name>.+)")
BORROWING = {Ablate.key: (MEAN, RESAMPLE)}
"""By edit, the ways that need what heads give elsewhere in the study."""
_ANY_HEAD, _ANY_KEY = {0: (0,)}, "special:"  # in place of what is known once the model or the class is


class TopSpec(Spec):
    """The heads of a model that have most of something, as it is without interventions; in short `top 10 by NAME`."""

    top: Whole = Field(ge=1, le=100_000, description="How many heads.")
    by: str = Field(min_length=1, description="A class, a set, a quantity or a measure: its mean over prompts.")
    queries: str | None = Field(None, description="A query group; by default the first.")
    condition: str | None = Field(None, description="A condition; by default the first.")
    difference: tuple[str, str] | None = Field(
        None, description="Two models with the same heads: those of which the second has most more than the first."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        match = _TOP.fullmatch(data) if isinstance(data, str) else None
        if isinstance(data, str) and match is None:
            context = {"given": data[:60], "near": "heads by layer such as {8: [0, 3]}, or top 10 by NAME"}
            raise PydanticCustomError("one_of", "'{given}' names no heads", context)
        return data if match is None else {"top": int(match["top"]), "by": match["by"]}


class ChangeSpec(Spec):
    """One attention edit of an intervention, `{edit: {...}}`; layers and heads may depend on the model."""

    edit: str = Field(description="The key of the edit.")
    options: dict[str, Any] = Field(description="The edit's own fields, but for layers.")
    layers: Band = Field("all", description="all, numbers from 0, or {depths: [0.4, 0.7]} for all layers between.")
    top: TopSpec | None = Field(None, description="For edits of heads: which heads, if they depend on the model.")
    open: bool = Field(False, description="Whether its keys or heads are said elsewhere: by the sweep that it is of.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if isinstance(data, dict) and len(data) == 1 and next(iter(data)) in ATTENTION_EDITS.members:
            ((key, value),) = data.items()
            return _as_fields(key, value)
        return data

    @field_validator("options")
    @classmethod
    def _numbered(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Layers by number, also where JSON has made text of them."""
        return {name: _with_numbers(value) for name, value in options.items()}

    @model_validator(mode="after")
    def _fits_its_edit(self) -> ChangeSpec:
        if self.edit not in ATTENTION_EDITS.members:
            context = {"given": self.edit, "near": near(self.edit, ATTENTION_EDITS.members)}
            raise PydanticCustomError("one_of", "'{given}' is no attention edit", context)
        if self.of_heads and self.kind.key in self.options and self.layers != "all":
            what = "the heads of {edit} name their layers already; remove layers"
            raise PydanticCustomError("one_of", what, {"edit": self.edit, "near": "layers with top, or in a sweep"})
        has_subject = self.kind.key in self.options
        if has_subject == (self.open or self.top is not None):
            what = "{edit} names no {word}" if not has_subject else "{edit} names {word}, which are said elsewhere"
            context = {"edit": self.edit, "word": self.kind.word, "near": f"{self.edit}: {{{self.kind.word}: ...}}"}
            raise PydanticCustomError("one_of", what, context)
        self.made("all", _ANY_HEAD if self.of_heads else _ANY_KEY)
        return self

    @property
    def kind(self) -> type[AttentionEdit]:
        return ATTENTION_EDITS.members[self.edit]

    def made(self, layers: Any, subject: Any = None, **more: Any) -> AttentionEdit:
        """The edit in these layers. subject: the keys or heads that it changes, if they are not among its options."""
        given = {**self.options, **more}
        if self.kind is Hide:
            given.setdefault("queries", WRITING.name)
        given.setdefault(self.kind.key, subject)
        if self.kind is Patch or given.get("how") in BORROWING.get(self.edit, ()):
            options = {"how": PATCH, **given, Borrowed.key: given[self.kind.key]}
            return Borrowed.model_validate({key: each for key, each in options.items() if key != self.kind.key})
        return self.kind.model_validate(given if self.of_heads else {**given, "layers": layers})

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        listed = handler.resolve_ref_schema(handler(schema))
        about = {"description": listed["description"], "title": listed["title"]}
        one = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
        return {**about, **one, "type": "object", "properties": _edits_in_schema()}

    def without_subject(self) -> dict[str, Any]:
        """The edit's fields, defaults too, but for the keys or heads and the layers that it changes."""
        edit = self.made("all", _ANY_HEAD if self.of_heads else _ANY_KEY)
        return edit.model_dump(exclude={edit.key, "layers", self.kind.key})

    @property
    def of_heads(self) -> bool:
        """Whether it changes the outputs of heads, rather than what queries can see."""
        return self.kind.changes == "outputs"


def _with_numbers(value: Any) -> Any:
    if isinstance(value, dict) and all(isinstance(each, str) and each.isdecimal() for each in value):
        return {int(each): inside for each, inside in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _as_fields(key: str, value: Any) -> dict[str, Any]:
    """`hide: {keys: "#", from: last, layers: [3]}`, with the words of study files, as the fields of a change."""
    kind = ATTENTION_EDITS.members[key]
    own = [name for name in kind.model_fields if name != key and name not in kind.words.values()]
    allowed = {**{name: name for name in own}, **kind.words}
    if kind is Patch:  # what it gives comes from another condition of the study
        allowed = {"layers": "layers", "from": "condition"}
    if not isinstance(value, dict) or (value and all(isinstance(each, int) for each in value)):
        value = {kind.word: value}
    allowed |= {kind.word: key}
    refuse_unknown_keys(value, allowed)
    if kind is Patch and "from" not in value:
        context = {"near": "from: NAME, a condition"}
        raise PydanticCustomError("one_of", "a patch says which condition it is from", context)
    fields = {allowed[word]: each for word, each in value.items()}
    given: dict[str, Any] = {"edit": key, "layers": fields.pop("layers", "all")}
    heads = fields.get(key)
    if kind.changes == "outputs" and (isinstance(heads, str) or (isinstance(heads, dict) and "top" in heads)):
        given["top"] = fields.pop(key)
    return {**given, "options": fields}


class SweepSpec(Spec):
    """One change many times over: in a window of layers that slides over depth, in every head or for every class."""

    over: Over = Field(description="layers, heads (each alone) or classes (each hidden alone).")
    window: Whole = Field(1, ge=1, le=1000, description="Over layers: how many are changed at once.")
    step: Whole = Field(1, ge=1, le=1000, description="Over layers: how far the window slides.")
    change: ChangeSpec = Field(description="What is changed; the layers it names are those that are swept.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "change" in data:
            return data
        named = [key for key in data if key in ATTENTION_EDITS.members]
        refuse_unknown_keys(data, {*named, *cls.model_fields, *ATTENTION_EDITS.members} - {"change"})
        if len(named) != 1:
            context = {"near": f"one of {', '.join(ATTENTION_EDITS.members)}"}
            raise PydanticCustomError("one_of", "a sweep makes one change", context)
        rest = {key: value for key, value in data.items() if key not in named}
        return {**rest, "change": _swept_fields(named[0], data[named[0]], str(data.get("over")))}

    @model_validator(mode="after")
    def _fits(self) -> SweepSpec:
        change = self.change
        if self.over == "classes" and change.kind is not Hide:
            raise PydanticCustomError("one_of", "a sweep over classes hides keys", {"near": "hide, or over: heads"})
        if self.over == "layers" and change.of_heads:
            what = "a sweep over layers changes what queries see"
            raise PydanticCustomError("one_of", what, {"near": "hide, or over: heads"})
        if self.over == "heads" and not change.of_heads and "heads" not in change.kind.model_fields:
            context = {"edit": change.edit, "near": "over: layers"}
            raise PydanticCustomError("one_of", "{edit} can't be made in a single head", context)
        if self.over != "layers" and (self.window, self.step) != (1, 1):
            raise PydanticCustomError("one_of", "window and step are for sweeps over layers", {"near": "over: layers"})
        if self.change.top is not None:
            raise PydanticCustomError("one_of", "a sweep over heads changes every head", {"near": "no heads here"})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        listed = handler.resolve_ref_schema(handler(schema))
        listed["properties"].pop("change")  # it is the edit, written beside the other keys
        return {**listed, "properties": listed["properties"] | _edits_in_schema(), "required": ["over"]}


def _swept_fields(key: str, value: Any, over: str) -> dict[str, Any]:
    """The fields of a swept change: what the sweep goes over is not among them."""
    kind = ATTENTION_EDITS.members[key]
    absent = (over == "classes" and kind is Hide) or (over == "heads" and kind.changes == "outputs")
    fields = _as_fields(key, {} if absent and value is None else value)
    if absent and (key in fields["options"] or "top" in fields):
        context = {"over": over, "word": kind.word, "near": f"{key} without {kind.word}"}
        raise PydanticCustomError("one_of", "a sweep over {over} names no {word}", context)
    return {**fields, "open": absent}


class InterventionSpec(NamedSpec):
    """Changes of attention that are made together while a model runs; without any, the model as it is."""

    name: Name = Field(description="Its name in tables and figures.")
    label: Line | None = Field(None, description="Its name in figures; by default the intervention's name.")
    colour: Colour | None = Field(None, description="Its colour in figures, such as '#ff7f0e'.")
    changes: list[ChangeSpec] = Field(default_factory=list, description="The changes, if there are several.")
    sweep: SweepSpec | None = Field(None, description="One change, many times over: see sweeps.")
    like: str | None = Field(None, description="The intervention that it is a control for: it changes as much.")
    restated: list[ChangeSpec] = Field(
        default_factory=list, description="Of a control: what it says again of the intervention that it is like."
    )
    draw: Draw | None = Field(
        None,
        description="What a control changes: `random`, or `matched` on what attention keys receive or on what heads "
        "are ranked by.",
    )
    control: Literal["random", "none"] = Field(
        "random",
        description="`random`: where no control for it is in the study, add one that changes as much at random. "
        "`none`: don't.",
    )
    redraws: str | None = Field(None, description="Written by attnscope: the control that this one draws again.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, dict):
            return data
        edits = {key: value for key, value in data.items() if key in ATTENTION_EDITS.members}
        short = {key: value for key, value in data.items() if key in (RANDOM, MATCHED)}
        own = {key: value for key, value in data.items() if key not in edits and key not in short}
        refuse_unknown_keys(own, {*cls.model_fields, *ATTENTION_EDITS.members, RANDOM, MATCHED})
        changes = []
        for key, value in edits.items():
            drawn, rest = _drawn_of(key, value)
            short |= drawn or {}
            changes.append({**_as_fields(key, rest), "open": drawn is not None})
        if not short:
            return {**own, "changes": [*own.get("changes", ()), *changes]} if changes else own
        if len(short) > 1:
            raise PydanticCustomError("one_of", "a control is either random or matched", {"near": "one of the two"})
        ((draw, name),) = short.items()
        match = _LIKE.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            context = {"given": repr(name)[:60], "near": "like NAME, the name of another intervention"}
            raise PydanticCustomError("one_of", "{given} names no intervention", context)
        return {**own, "like": match["name"], "draw": draw, "restated": changes}

    @model_validator(mode="after")
    def _one_of_them(self) -> InterventionSpec:
        given = [key for key, value in (("changes", self.changes), ("sweep", self.sweep), ("like", self.like)) if value]
        if len(given) > 1:
            context = {"one": given[0], "two": given[1], "near": "one of the two"}
            raise PydanticCustomError("one_of", "an intervention has either {one} or {two}", context)
        if (self.like is None) != (self.draw is None):
            raise PydanticCustomError("one_of", "a control names what it is like and what is drawn")
        if not given and self.name != NONE:
            context = {"name": self.name, "near": f"{', '.join(ATTENTION_EDITS.members)}, sweep, random or matched"}
            raise PydanticCustomError("one_of", "'{name}' changes nothing", context)
        if given and self.name == NONE:
            raise PydanticCustomError("one_of", "'none' is the model as it is", {"near": "another name"})
        return self

    @property
    def is_none(self) -> bool:
        """Whether it is the model as it is."""
        return not self.changes and self.sweep is None and self.like is None

    @property
    def over(self) -> Over | None:
        """What it sweeps over, if it does. A control of a sweep sweeps as well, but does not say so itself."""
        return None if self.sweep is None else self.sweep.over

    @property
    def every_change(self) -> list[ChangeSpec]:
        """Its changes; of a sweep, the one that it makes many times."""
        return self.changes if self.sweep is None else [self.sweep.change]

    @property
    def is_added(self) -> bool:
        """Whether attnscope added it as a control, rather than the study's author."""
        return self.redraws is not None or (self.like is not None and self.name == CONTROL.format(self.like))

    @property
    def can_be_drawn(self) -> bool:
        """Whether as much of something else can be changed; of several changes, each might be drawn for another."""
        kinds = [ATTENTION_EDITS.members[change.edit] for change in self.every_change]
        return len(kinds) == 1 and self.over != "heads" and all(kind.control_words for kind in kinds)

    def controlled(self) -> InterventionSpec:
        """A control for it: as much changed at random."""
        label = self.label and CONTROL.format(self.label)
        return InterventionSpec(name=CONTROL.format(self.name), label=label, like=self.name, draw=RANDOM)

    def redrawn(self) -> InterventionSpec:
        """The same control, drawn a second time."""
        names = {"name": REDRAWN.format(self.name), "label": self.label and REDRAWN.format(self.label)}
        return self.model_copy(update={**names, "colour": None, "redraws": self.name})

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        listed = handler.resolve_ref_schema(handler(schema))
        for name in ("redraws", "restated", "like", "draw"):  # they are in manifests only
            listed["properties"].pop(name)
        drawn = {key: {"type": "string", "description": f"A {key} control: like NAME."} for key in (RANDOM, MATCHED)}
        listed["properties"] |= _edits_in_schema() | drawn
        return {"anyOf": [{"type": "string", "minLength": 1}, listed]}


def _edits_in_schema() -> dict[str, Any]:
    """Every attention edit as a key, written as a mapping or in short."""
    kinds = ATTENTION_EDITS.members.values()
    return {kind.key: {"description": kind.__doc__, "type": ["object", "string", "array", "number"]} for kind in kinds}


def _drawn_of(key: str, value: Any) -> tuple[dict[str, Any] | None, Any]:
    """`keys: {random: like NAME}` or `heads: {...}` inside an edit: the draw, and what else stands there; or None."""
    word = ATTENTION_EDITS.members[key].word
    inside = value.get(word) if isinstance(value, dict) else None
    if isinstance(inside, dict) and len(inside) == 1 and next(iter(inside)) in (RANDOM, MATCHED):
        return dict(inside), {name: each for name, each in value.items() if name != word}
    return None, value


class OutcomeSpec(Spec):
    """What shows whether an intervention matters: what the model makes of an answer, with it and without."""

    answer: str | None = Field(
        None,
        description="The field of the prompts with the answer that follows them. By default that of `prompts.answer`, "
        "which may also be the model's own answer, written without any intervention.",
    )
    choices: list[str] | str | None = Field(
        None,
        description="Other answers to choose among: a list for all prompts, or the field that has each prompt's. The "
        "likeliest is chosen.",
    )
    scores: list[Score] = Field(
        default=["logprob"],
        min_length=1,
        description="What is compared: logprob (the answer's log probability), accuracy (the share of prompts whose "
        "answer is the likeliest choice or, without choices, what the model would write), flips (the share whose "
        "choice, or being written, changes) and kl (of the prediction of the answer's first token).",
    )
    margin: Real | None = Field(
        None, gt=0, description="The smallest change of the log probability that matters: tests for no change use it."
    )
    conditions: list[str] | None = Field(
        None, min_length=1, description="The conditions under which to intervene; by default all."
    )

    @field_validator("choices")
    @classmethod
    def _several(cls, data: Any) -> Any:
        if isinstance(data, list) and (len(set(data)) < len(data) or not all(data) or not data):
            raise PydanticCustomError("one_of", "choices are empty or given twice", {"near": "each answer once"})
        return data

    @field_validator("scores")
    @classmethod
    def _once(cls, data: Any) -> Any:
        if len(set(data)) < len(data):
            raise PydanticCustomError("one_of", "a score is listed twice", {"near": "each score once"})
        return data


def with_controls(interventions: Sequence[InterventionSpec]) -> list[InterventionSpec]:
    """The interventions, then what is not written out: the model as it is, controls, and controls drawn again."""
    if not interventions:
        return []
    controlled = {spec.like for spec in interventions}
    made = [spec.controlled() for spec in interventions if _lacks_control(spec) and spec.name not in controlled]
    drawn = {spec.redraws for spec in interventions}
    again = [
        spec.redrawn()
        for spec in (*interventions, *made)
        if spec.draw == RANDOM and spec.redraws is None and spec.name not in drawn
    ]
    none = [] if any(spec.is_none for spec in interventions) else [InterventionSpec(name=NONE)]
    return [*interventions, *none, *made, *again]


def _lacks_control(spec: InterventionSpec) -> bool:
    return spec.control == RANDOM and spec.like is None and spec.can_be_drawn
