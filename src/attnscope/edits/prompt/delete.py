"""A segment taken out: `delete: passages[role=distractor]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from attnscope.edits.prompt.edit import EditContext, EditProblem, Lines, PromptEdit, segment_problem
from attnscope.edits.prompt.parts import chosen, refuse_if_empty, without
from attnscope.text.layout import Layout


class Delete(PromptEdit):
    """Takes segments out of the prompt, with the separators of a list and with messages that would be empty."""

    key: ClassVar[str] = "delete"
    may_insert: ClassVar[bool] = False

    delete: str = Field(min_length=1, description="The segment, family of segments or selector to take out.")

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        yield from segment_problem("delete", self.delete, layout)

    def named_segments(self) -> Iterator[tuple[str, str]]:
        yield "delete", self.delete

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        return refuse_if_empty(without(lines, chosen(lines, self.delete, context)), context)
