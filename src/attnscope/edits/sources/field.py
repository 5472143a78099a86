"""Another field of the same prompt: `with: {field: paraphrase}`."""

from __future__ import annotations

from itertools import cycle, islice
from random import Random
from typing import ClassVar

from pydantic import Field

from attnscope.edits.sources.own_text import words
from attnscope.edits.sources.source import Source, SourceContext
from attnscope.errors import AttnscopeError, near


class FieldText(Source):
    """The text of a field of the prompt, in the layout or not; a unit is a word with the spaces before it."""

    key: ClassVar[str] = "field"

    field: str = Field(min_length=1, description="The field.")

    @property
    def text_field(self) -> str | None:
        return self.field

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        return "".join(islice(cycle(words(self._text(context))), units))

    def natural(self, context: SourceContext) -> int | None:
        return len(words(self._text(context)))

    def _text(self, context: SourceContext) -> str:
        text = context.fields.get(self.field)
        if not text:
            raise AttnscopeError(
                f"the prompt has no field '{self.field}' with some text",
                where=f"field: {self.field}",
                allowed=near(self.field, context.fields),
                todo="name a field that every prompt has",
            )
        return text
