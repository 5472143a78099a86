"""Classes in a study file: one rule each, under the key of a class rule."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from attnscope.errors import AttnscopeError, StoppingError
from attnscope.spec import Spec, refuse_unknown_keys
from attnscope.study.field_types import Colour, Line
from attnscope.text.classes import Rule, argument_problem, parse_rule, written_rule
from attnscope.text.rules import ClassRule, rules_by_key


class ClassSpec(Spec):
    """A class of tokens, defined by one rule: text such as `re:[0-9]`, or a mapping with the rule's key."""

    model_config = ConfigDict(extra="allow", frozen=True)  # the rule's key, which may come from a plugin

    within: str | None = Field(None, description="For characters or regex: only in this segment.")
    share: Literal["characters", "whole", "majority", "first"] = Field(
        "characters",
        description="How a token is counted that has characters of other classes too: by its share of characters; or "
        "as a whole, if the class has any of them (whole), at least half (majority), or the first one (first).",
    )
    label: Line | None = Field(None, description="Its name in figures; by default the class's name.")
    colour: Colour | None = Field(None, description="Its colour in figures.")

    @model_validator(mode="before")
    @classmethod
    def _one_rule(cls, data: Any) -> Any:
        if data is None:
            raise PydanticCustomError("unquoted", "this class is empty; an unquoted # begins a comment, so write '#'")
        if isinstance(data, str):
            return _from_text(data)
        if isinstance(data, ClassSpec):
            return data
        if not isinstance(data, dict):
            near = "text, in quotes if it looks like a number, or a mapping with a rule"
            raise PydanticCustomError("one_of", "{given} is not a class", {"given": repr(data)[:60], "near": near})
        rules = rules_by_key()
        data = {key: value for key, value in data.items() if value is not None}
        refuse_unknown_keys(data, {**rules, **cls.model_fields})
        named = [key for key in data if key in rules]
        if len(named) != 1:
            choice = {"near": f"one of {', '.join(rules)}"}
            raise PydanticCustomError("one_of", "a class has one rule", choice)
        rule, argument = rules[named[0]], data[named[0]]
        if rule.numeric and isinstance(argument, int) and not isinstance(argument, bool):
            argument = str(argument)
        _refuse_wrong_argument(rule, argument, data.get("within"))
        return {**data, named[0]: argument}

    @property
    def parsed(self) -> Rule:
        """Its rule, parsed."""
        ((key, argument),) = (self.model_extra or {}).items()
        return Rule(rules_by_key()[key], "" if argument is True else argument, self.within, self.share)

    @property
    def rule(self) -> str:
        """Its rule as text, as in `attnscope measure --class`."""
        rule = self.parsed
        return written_rule(rule.kind, rule.argument, rule.within, rule.share)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described = handler.resolve_ref_schema(handler(schema))
        rules = rules_by_key()
        described["properties"] = {
            **{key: _argument_schema(rule) for key, rule in rules.items()},
            **described.get("properties", {}),
        }
        described["additionalProperties"] = False
        described["oneOf"] = [{"required": [key]} for key in rules]
        return {"anyOf": [{"type": "string", "minLength": 1}, described]}


def checked_rule(text: str) -> str:
    """A rule written as text, if it can be read."""
    _parsed(text)
    return text


def _parsed(text: str) -> Rule:
    try:
        return parse_rule(text)
    except StoppingError:
        raise
    except AttnscopeError as error:
        context = {"why": error.what, "near": f"{error.allowed}; {error.todo}"}
        raise PydanticCustomError("one_of", "{why}", context) from None


def _from_text(text: str) -> dict[str, Any]:
    rule = _parsed(text)
    return {rule.kind.study_key: rule.argument or True, "within": rule.within, "share": rule.share}


def _refuse_wrong_argument(rule: ClassRule, argument: Any, within: Any) -> None:
    if not isinstance(argument, str) and not (argument is True and rule.argument_optional):
        also = [*(["true"] if rule.argument_optional else []), *(["a whole number"] if rule.numeric else [])]
        allowed = " or ".join([*also, "text"])
        context = {"key": rule.study_key, "given": repr(argument)[:60], "near": allowed}
        raise PydanticCustomError("one_of", "{key} can't be {given}", context)
    problem = argument_problem(rule, "" if argument is True else argument, within)
    if problem is not None:
        raise PydanticCustomError("one_of", "{why}", {"why": problem, "near": f"{rule.study_key}: {rule.meaning}"})


def _argument_schema(rule: ClassRule) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    also = [*([{"const": True}] if rule.argument_optional else []), *([{"type": "integer"}] if rule.numeric else [])]
    return {**({"anyOf": [*also, text]} if also else text), "description": rule.meaning}
