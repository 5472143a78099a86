"""Kinds of text in a study file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from attnscope.registry import Registry

COLOUR = r"^#[0-9a-fA-F]{3}([0-9a-fA-F]{3})?$"
LINE = r"^[^\x00-\x1f\x7f\u2028\u2029]+$"
Line = Annotated[str, Field(pattern=LINE)]
"""Text on one line."""
Colour = Annotated[str, Field(pattern=COLOUR)]
"""Such as '#ff7f0e'."""


def names_in_schema(family: Registry[Any], *, closed: bool = True) -> Callable[[dict[str, Any]], None]:
    """For a field's schema: the names of a family, asked for when the schema is. closed: no other name is allowed."""

    def add(schema: dict[str, Any]) -> None:
        names = list(family.members)
        for part in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
            if part.get("type") == "string":
                part["enum" if closed else "examples"] = names

    return add
