"""A segment said more than once: `repeat: question, times: 2`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from attnscope.edits.prompt.edit import EditContext, EditProblem, Lines, PromptEdit, segment_problem
from attnscope.edits.prompt.parts import chosen, mapped, pieces_of, refuse_if_scattered, split
from attnscope.spec import Whole
from attnscope.text.layout import Layout
from attnscope.text.segments import INSERTED, Piece


class Repeat(PromptEdit):
    """Repeats a segment right after itself. The copies count as inserted; the first one stays what it was."""

    key: ClassVar[str] = "repeat"

    repeat: str = Field(min_length=1, description="The segment to repeat.")
    times: Whole = Field(2, ge=2, le=1000, description="How often it occurs then.")
    separator: str = Field("\n", description="Text between the copies; counts as inserted.")

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        yield from segment_problem("repeat", self.repeat, layout)

    def named_segments(self) -> Iterator[tuple[str, str]]:
        yield "repeat", self.repeat

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        names = chosen(lines, self.repeat, context)
        refuse_if_scattered(lines, names, self.repeat, context)
        last = [piece for piece in pieces_of(lines) if piece.segment in names][-1]
        whole = "".join(piece.text for piece in split(lines, names)[1])
        copies = Piece(INSERTED, (self.separator + whole) * (self.times - 1))
        return mapped(lines, lambda piece: [piece, copies] if piece is last else [piece])
