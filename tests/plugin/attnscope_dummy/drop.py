"""A prompt edit: `drop: instruction` leaves a segment out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from attnscope.edits.prompt import EditContext, EditProblem, Lines, PromptEdit
from attnscope.edits.prompt.edit import segment_problem
from attnscope.text.layout import Layout


class Drop(PromptEdit):
    """Leaves a segment out."""

    key: ClassVar[str] = "drop"

    drop: str = Field(description="The segment.")

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        yield from segment_problem("drop", self.drop, layout)

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        return [(role, [piece for piece in pieces if piece.segment != self.drop]) for role, pieces in lines]
