"""A segment put elsewhere: `move: instruction, after: question`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from attnscope.edits.prompt.edit import EditContext, EditProblem, Lines, PromptEdit, segment_problem
from attnscope.edits.prompt.parts import chosen, refuse_if_scattered, split
from attnscope.errors import AttnscopeError
from attnscope.text.layout import Layout
from attnscope.text.segments import TEMPLATE, Piece


class Move(PromptEdit):
    """Moves a segment right before or after another. Its tokens stay the same tokens."""

    key: ClassVar[str] = "move"
    may_insert: ClassVar[bool] = False

    move: str = Field(min_length=1, description="The segment to move.")
    before: str | None = Field(None, description="Move it right before this segment.")
    after: str | None = Field(None, description="Move it right after this segment.")
    separator: str = Field("\n", description="New text between the two.")

    @model_validator(mode="after")
    def _one_place(self) -> Move:
        if (self.before is None) == (self.after is None):
            raise PydanticCustomError("one_of", "give either before or after, with one segment")
        return self

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        for key in ("move", "before", "after"):
            selector = getattr(self, key)
            if selector is not None:
                yield from segment_problem(key, selector, layout)
        if self.move in (self.before, self.after):
            yield EditProblem("move", f"'{self.move}' can't be moved next to itself", "two different segments")

    def named_segments(self) -> Iterator[tuple[str, str]]:
        named = {"move": self.move, "before": self.before, "after": self.after}
        yield from ((key, selector) for key, selector in named.items() if selector is not None)

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        names = chosen(lines, self.move, context)
        beside = chosen(lines, self.before or self.after or "", context)
        if set(names) & set(beside):
            raise AttnscopeError(
                f"'{self.move}' can't be moved next to itself",
                where=context.where,
                allowed="two different segments",
                todo="name another place",
            )
        refuse_if_scattered(lines, names, self.move, context)
        left, moved = split(lines, names)
        gap = [Piece(TEMPLATE, self.separator)] if self.separator else []
        placed, done = [], False
        last = beside[-1] if self.after else beside[0]
        for role, pieces in left:
            line: list[Piece] = []
            for piece in pieces:
                here = piece.segment == last and not done
                if here and self.before is not None:
                    line += [*moved, *gap, piece]
                elif here:
                    line += [piece, *gap, *moved]
                else:
                    line.append(piece)
                done = done or here
            placed.append((role, line))
        return placed
