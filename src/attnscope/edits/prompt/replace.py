"""Other text in place of a segment: `replace: {segment: question, with: {text: "N/A"}}`."""

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
from attnscope.spec import Spec, Whole
from attnscope.text.layout import Layout
from attnscope.text.segments import Piece


class ReplaceSpec(Spec):
    """What is replaced, and by what."""

    segment: str = Field(min_length=1, description="The segment to replace; every item, if it is a list.")
    with_: AnySource = Field(alias="with", description="The text that takes its place: one source.")


class Replace(PromptEdit):
    """Replaces the text of a segment. The new text is in the same segment, but its tokens are new tokens.

    It has as many tokens as you say (`tokens`), as many as what it replaces (`match: replaced`, the default for sources
    without a length of their own), or the source's own length.
    """

    key: ClassVar[str] = "replace"
    may_insert: ClassVar[bool] = False

    replace: ReplaceSpec = Field(
        description="`segment`: what is replaced, every item if it is a list; `with`: the text in its place, one "
        "source such as `{text: ...}`."
    )
    tokens: Whole | None = Field(None, ge=1, description="Exactly this many tokens.")
    match: str | None = Field(None, description="`replaced`: as many tokens as the text it replaces.")

    @model_validator(mode="after")
    def _one_length(self) -> Replace:
        if self.tokens is not None and self.match is not None:
            raise PydanticCustomError("one_of", "give one of tokens and match")
        if self.match not in (None, "replaced"):
            raise PydanticCustomError(
                "one_of", "'{given}' can't be matched here", {"given": self.match, "near": "replaced"}
            )
        return self

    @property
    def source(self) -> AnySource:
        return self.replace.with_

    @property
    def is_random(self) -> bool:
        return bool(self.source.random)

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        yield from segment_problem("replace", self.replace.segment, layout)
        yield from repeated_problem("replace", self.replace.segment, layout)
        if self.source.segment is not None:
            yield from source_problem("replace", self.source, layout)

    def named_segments(self) -> Iterator[tuple[str, str]]:
        yield "replace", self.replace.segment
        if self.source.segment is not None:
            yield "replace", self.source.segment

    def named_fields(self) -> Iterator[tuple[str, str]]:
        if self.source.text_field is not None:
            yield "replace", self.source.text_field

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        for number, name in enumerate(chosen(lines, self.replace.segment, context)):
            lines = self._replaced(lines, name, number, context)
        return lines

    def _replaced(self, lines: Lines, name: str, number: int, context: EditContext) -> Lines:
        first = next(piece for piece in pieces_of(lines) if piece.segment == name)
        old = "".join(piece.text for piece in pieces_of(lines) if piece.segment == name)

        def placed(text: str) -> Lines:
            def change(piece: Piece) -> list[Piece]:
                if piece.segment != name:
                    return [piece]
                return [piece.replaced(text)] if piece is first else []

            return mapped(lines, change)

        wanted = self.tokens
        if wanted is None and (self.match is not None or not self.source.has_length):
            wanted = context.count(lines, name)
        text = drafted(
            self.source, wanted, lambda text: context.count(placed(text), name), context, old=old, turn=number
        )
        return placed(text)
