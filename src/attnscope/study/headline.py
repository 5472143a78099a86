"""The headline of a study: the statements that the answer to its question is made from."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from attnscope.spec import NamedSpec


class HeadlineSpec(NamedSpec):
    """One statement of the answer: how large something is, how it differs between two sides, or its course."""

    measure: str = Field(min_length=1, description="A class, a set or a quantity, by name.")
    queries: str | None = Field(None, description="A query group; by default the first.")
    conditions: list[str] | None = Field(
        None, min_length=1, description="The conditions to give it for; by default the first."
    )
    difference: tuple[str, str] | None = Field(
        None, description="Two conditions or two models: the second minus the first, instead of the values themselves."
    )
    over: str | None = Field(None, description="A series of query groups: its first group and its last one.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"measure": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _one_of_them(self) -> HeadlineSpec:
        if self.difference is not None and (self.over is not None or self.conditions is not None):
            other = "over" if self.over is not None else "conditions"
            raise PydanticCustomError("one_of", "a statement has either difference or {other}", {"other": other})
        if self.over is not None and self.queries is not None:
            raise PydanticCustomError("one_of", "a statement has either queries or over, which are the series' groups")
        return self
