"""Conditions in a study file: edits of the base prompt."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from attnscope.edits.prompt import PROMPT_EDITS, AnyPromptEdit
from attnscope.edits.prompt.insert import Insert
from attnscope.spec import Spec, refuse_unknown_keys
from attnscope.study.field_types import Colour, Line, Name


class ConditionSpec(Spec):
    """Edits of the base prompt, applied in order; without any, the base prompt itself.

    You can write the keys of a single edit next to the name; list several edits under `edits`.
    """

    name: Name = Field(description="Its name in tables and figures.")
    label: Line | None = Field(None, description="Its name in figures; by default the condition's name.")
    colour: Colour | None = Field(None, description="The colour of its line or bar, such as '#ff7f0e'.")
    edits: list[AnyPromptEdit] = Field(default_factory=list, description="The edits, in order, each with its own keys.")
    control: Literal["redraw"] | None = Field(
        None,
        description="`redraw`: draw its random text a second time, as a condition of its own. The difference between "
        "the two is a placebo: what chance alone gives.",
    )
    redraws: str | None = Field(None, description="Written by attnscope: the condition that this one draws again.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, dict) or set(data) <= set(cls.model_fields):
            return data
        own = {key: value for key, value in data.items() if key in cls.model_fields}
        edit = {key: value for key, value in data.items() if key not in own and value is not None}
        return {**own, "edits": _flat_edit(edit)} if not own.get("edits") else _refuse_both(edit)

    @property
    def is_random(self) -> bool:
        """Whether a second draw would give another prompt."""
        return any(edit.is_random for edit in self.edits)

    def redrawn(self) -> ConditionSpec:
        """The same condition drawn a second time."""
        names = {"name": f"{self.name} (placebo)", "label": self.label and f"{self.label} (placebo)"}
        return self.model_copy(update={**names, "colour": None, "control": None, "redraws": self.name})

    @property
    def is_base(self) -> bool:
        """Whether it is the base prompt itself."""
        return not self.edits

    @property
    def inserts(self) -> bool:
        """Whether it only inserts text, so that its tokens can be aligned to the base prompt's."""
        return bool(self.edits) and all(isinstance(edit, Insert) for edit in self.edits)

    @property
    def matched(self) -> list[str]:
        """The conditions whose number of inserted tokens it matches."""
        matches = (edit.match for edit in self.edits if isinstance(edit, Insert))
        return list(dict.fromkeys(match for match in matches if match is not None))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        listed = handler.resolve_ref_schema(handler(schema))
        listed["properties"].pop("redraws")  # it is in manifests only
        shared = {name: field for name, field in listed["properties"].items() if name != "edits"}
        flat = []
        for edit in PROMPT_EDITS.members.values():
            described = handler.resolve_ref_schema(handler(edit.__pydantic_core_schema__))
            flat.append(
                {
                    **described,
                    "title": f"{cls.__name__} with {edit.key}",
                    "properties": {**shared, **described["properties"]},
                    "required": ["name", *described.get("required", ())],
                }
            )
        return {"anyOf": [{"type": "string", "minLength": 1}, listed, *flat]}


def _flat_edit(edit: dict[str, Any]) -> list[dict[str, Any]]:
    """The one edit whose keys are next to a condition's name."""
    members = PROMPT_EDITS.members
    named = [key for key in edit if key in members]
    known = {key for name in named or members for key in members[name].model_fields}
    refuse_unknown_keys(edit, {*known, *members, *ConditionSpec.model_fields})
    if len(named) > 1:
        what = "{one} and {two} are two edits: list them under edits, in order"
        raise PydanticCustomError(
            "one_of", what, {"one": named[0], "two": named[1], "near": "one edit, or edits: [...]"}
        )
    if named:
        return [edit]
    if set(edit) <= {"separator"}:  # older runs wrote the base prompt like this
        return []
    what = "{key} belongs to no edit: add an edit, or remove {key}"
    raise PydanticCustomError("one_of", what, {"key": next(iter(edit)), "near": f"one of {', '.join(members)}"})


def _refuse_both(edit: dict[str, Any]) -> Any:
    what = "'{key}' is next to edits: move it into one of them"
    raise PydanticCustomError("one_of", what, {"key": next(iter(edit)), "near": "edits, or the keys of one edit"})
