"""Text put before or after a segment: `insert: {repeat: "/"}, tokens: 55, before: question`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from attnscope.edits.prompt.drafting import drafted
from attnscope.edits.prompt.edit import (
    EditContext,
    EditProblem,
    Lines,
    PromptEdit,
    repeated_problem,
    segment_problem,
    source_problem,
)
from attnscope.edits.prompt.parts import chosen, mapped, pieces_of
from attnscope.edits.sources import AnySource
from attnscope.errors import AttnscopeError
from attnscope.spec import Whole
from attnscope.text.layout import Layout
from attnscope.text.segments import INSERTED, Piece

MOST = 100_000  # repetitions of a string


class Insert(PromptEdit):
    """Inserts text before or after a segment, with an exact number of tokens if you give one."""

    key: ClassVar[str] = "insert"

    insert: AnySource = Field(description="The text to insert: one source.")
    before: str | None = Field(None, description="Insert right before this segment.")
    after: str | None = Field(None, description="Insert right after this segment.")
    separator: str = Field("\n", description="Text between the insertion and the segment; counts as inserted.")
    times: Whole | None = Field(None, ge=1, le=MOST, description="How often to repeat a string, whatever the tokens.")
    tokens: Whole | None = Field(
        None, ge=1, description="Insert exactly this many tokens, counted by the model's tokenizer."
    )
    match: str | None = Field(None, description="Insert as many tokens as this earlier condition, prompt by prompt.")

    @model_validator(mode="after")
    def _whole(self) -> Insert:
        lengths = [name for name in ("times", "tokens", "match") if getattr(self, name) is not None]
        if (self.before is None) == (self.after is None):
            raise PydanticCustomError("one_of", "give either before or after, with one segment")
        if len(lengths) > 1:
            raise PydanticCustomError("one_of", "give one of times, tokens and match")
        if self.times is not None and self.insert.key != "repeat":
            raise PydanticCustomError("one_of", "times is for a repeated string; use tokens or match")
        if not lengths and not self.insert.has_length:
            raise PydanticCustomError("one_of", "an insertion needs a length: add times, tokens or match")
        return self

    @property
    def is_random(self) -> bool:
        return self.insert.random

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        for key, segment in (("before", self.before), ("after", self.after)):
            if segment is not None:
                yield from segment_problem(key, segment, layout)
                yield from repeated_problem(key, segment, layout)
        if self.insert.segment is not None:
            yield from source_problem("insert", self.insert, layout)

    def named_segments(self) -> Iterator[tuple[str, str]]:
        named = {"before": self.before, "after": self.after, "insert": self.insert.segment}
        yield from ((key, selector) for key, selector in named.items() if selector is not None)

    def named_fields(self) -> Iterator[tuple[str, str]]:
        if self.insert.text_field is not None:
            yield "insert", self.insert.text_field

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        beside = chosen(lines, self.before or self.after or "", context)
        pieces = [piece for piece in pieces_of(lines) if piece.segment in beside]
        place = pieces[0] if self.before is not None else pieces[-1]

        def placed(text: str) -> Lines:
            before = [Piece(INSERTED, text + self.separator)] if self.before is not None else []
            after = [Piece(INSERTED, self.separator + text)] if self.after is not None else []
            return mapped(lines, lambda piece: [*before, piece, *after] if piece is place else [piece])

        already = self._already(lines, context)
        wanted = None if self.times is not None else self._wanted(context)
        text = drafted(
            self.insert,
            wanted,
            lambda text: context.count(placed(text), INSERTED) - already,
            context,
            units=self.times,
        )
        return placed(text)

    def _already(self, lines: Lines, context: EditContext) -> int:
        """How many tokens earlier edits inserted."""
        edited = any(piece.segment == INSERTED for _, pieces in lines for piece in pieces)
        return context.count(lines, INSERTED) if edited else 0

    def _wanted(self, context: EditContext) -> int | None:
        wanted = self.tokens if self.match is None else context.inserted.get(self.match)
        if self.match is not None and wanted is None:
            raise AttnscopeError(
                f"condition '{self.match}' could not be built for this prompt",
                where=context.where,
                allowed="prompts for which both conditions can be built",
                todo="see why that prompt was dropped",
            )
        return wanted
