"""Types of fields in a study file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from attnscope.registry import Registry

COLOUR = r"^#[0-9a-fA-F]{3}([0-9a-fA-F]{3})?$"
LINE = r"^[^\x00-\x1f\x7f\u2028\u2029]+$"
Line = Annotated[str, Field(pattern=LINE)]
"""Text on one line."""
NAME = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+$"
Name = Annotated[str, Field(pattern=NAME)]
"""Text on one line, without characters that control a terminal or the direction of text."""
Colour = Annotated[str, Field(pattern=COLOUR)]
"""A colour such as '#ff7f0e'."""


def names_in_schema(family: Registry[Any], *, closed: bool = True) -> Callable[[dict[str, Any]], None]:
    """Adds the names of a family to a field's schema when it is generated. closed: no other name is allowed."""

    def add(schema: dict[str, Any]) -> None:
        names = list(family.members)
        for subschema in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
            if subschema.get("type") == "string":
                subschema["enum" if closed else "examples"] = names

    return add
