"""Parts of a study file as data: mappings that refuse keys they don't know, and choices among a family's members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, Strict, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from attnscope.errors import near

Whole = Annotated[int, Strict()]
"""A whole number. Without strictness, true, 1.0 and "1" would be one, too."""
Real = Annotated[float, Strict()]
"""A number; neither true nor text is one."""


class Spec(BaseModel):
    """A mapping of a study file; an unknown key is refused, with the nearest known ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict) and cls.model_config.get("extra") == "forbid":
            refuse_unknown_keys(data, {field.alias or name for name, field in cls.model_fields.items()})
        return data


class NamedSpec(Spec):
    """A mapping that may also be written as its name alone."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "minLength": 1}, handler.resolve_ref_schema(handler(schema))]}


def refuse_unknown_keys(data: Mapping[Any, Any], known: Mapping[str, Any] | set[str]) -> None:
    """For use in validators: refuse the first unknown key, with the nearest known ones."""
    for key in data:
        if key not in known:
            context = {"key": str(key), "near": near(str(key), known)}
            raise PydanticCustomError("unknown_key", "unknown key '{key}'", context)


class OneOf:
    """Annotates a field that contains one member of a family of models, identified by the key that names it.

    Members are looked up when a study is read or its schema is asked for, not when this is imported.
    """

    def __init__(self, word: str, base: type[BaseModel], members: Callable[[], Mapping[str, type[BaseModel]]]) -> None:
        self.word, self.base, self.members = word, base, members

    def chosen(self, data: Any) -> Any:
        """The member that a mapping describes."""
        if isinstance(data, self.base):
            return data
        members = self.members()
        if not isinstance(data, dict):
            what = "{given} is not a mapping that names {word}"
            raise PydanticCustomError("one_of", what, self._context({"given": repr(data)[:60]}, members))
        named = [key for key in data if key in members]
        if len(named) == 1:
            return members[named[0]].model_validate(data)
        if named:
            what = "{given} are named at once; each goes in an entry of its own"
            raise PydanticCustomError("one_of", what, self._context({"given": " and ".join(named)}, members))
        unknown = next((str(key) for key in data), "")
        nearest = {"near": near(unknown, members)} if unknown else {}
        what = "no key here names {word}" + (": unknown key '{key}'" if unknown else "")
        raise PydanticCustomError("one_of", what, {**self._context({"key": unknown}, members), **nearest})

    def _context(self, facts: dict[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
        return {**facts, "word": self.word, "near": f"one of {', '.join(members)}"}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.chosen,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda member, info: member.model_dump(mode=info.mode), info_arg=True
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(member.__pydantic_core_schema__) for member in self.members().values()]}
