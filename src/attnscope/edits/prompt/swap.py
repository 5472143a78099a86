"""Two segments that change places: `swap: [instruction, question]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from attnscope.edits.prompt.edit import EditContext, EditProblem, Lines, PromptEdit, segment_problem
from attnscope.edits.prompt.parts import chosen, mapped, pieces_of
from attnscope.errors import AttnscopeError
from attnscope.text.layout import Layout


class Swap(PromptEdit):
    """Exchanges two segments. Their tokens stay the same tokens, so differences on them are still paired."""

    key: ClassVar[str] = "swap"
    may_insert: ClassVar[bool] = False

    swap: Annotated[list[str], Field(min_length=2, max_length=2)] = Field(description="The two segments to exchange.")

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        for selector in self.swap:
            yield from segment_problem("swap", selector, layout)
        if self.swap[0] == self.swap[1]:
            yield EditProblem("swap", f"'{self.swap[0]}' can't change places with itself", "two different segments")

    def named_segments(self) -> Iterator[tuple[str, str]]:
        yield from (("swap", selector) for selector in self.swap)

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        one, two = (self._single(lines, selector, context) for selector in self.swap)
        if one == two:
            raise AttnscopeError(
                f"'{one}' can't change places with itself",
                where=context.where,
                allowed="two different segments",
                todo="name another",
            )
        parts = {name: [piece for piece in pieces_of(lines) if piece.segment == name] for name in (one, two)}
        other = {one: parts[two], two: parts[one]}
        return mapped(lines, lambda piece: other.get(piece.segment, [piece]))

    def _single(self, lines: Lines, selector: str, context: EditContext) -> str:
        """The segment that a selector means; it has to be one, in one piece."""
        names = chosen(lines, selector, context)
        pieces = sum(piece.segment in names for piece in pieces_of(lines))
        if pieces > 1:
            raise AttnscopeError(
                f"'{selector}' is {pieces} parts of the prompt, so it has no single place",
                where=context.where,
                allowed=f"one of {', '.join(names[:4])}" if len(names) > 1 else "a segment that occurs once",
                todo="name one of them",
            )
        return names[0]
