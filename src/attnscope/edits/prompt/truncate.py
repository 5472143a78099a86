"""A segment cut to some of its tokens: `truncate: context, tokens: 200`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.edits.prompt.edit import EditContext, EditProblem, Lines, PromptEdit, segment_problem
from attnscope.edits.prompt.parts import chosen, mapped, pieces_of
from attnscope.errors import AttnscopeError
from attnscope.spec import Whole
from attnscope.text.layout import Layout

REACH = 32  # characters beyond the first cut that are tried


class Truncate(PromptEdit):
    """Cuts a segment to at most so many tokens, counted by the model's tokenizer. What stays keeps its tokens."""

    key: ClassVar[str] = "truncate"
    may_insert: ClassVar[bool] = False

    truncate: str = Field(min_length=1, description="The segment to cut.")
    tokens: Whole = Field(ge=1, description="At most this many tokens stay.")
    keep: Literal["start", "end"] = Field("start", description="Which end stays.")

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        yield from segment_problem("truncate", self.truncate, layout)

    def named_segments(self) -> Iterator[tuple[str, str]]:
        yield "truncate", self.truncate

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        names = chosen(lines, self.truncate, context)
        pieces = [piece for piece in pieces_of(lines) if piece.segment in names]
        if len(pieces) > 1:
            raise AttnscopeError(
                f"'{self.truncate}' is {len(pieces)} parts of the prompt, so it can't be cut as one",
                where=context.where,
                allowed=f"one of {', '.join(names[:4])}" if len(names) > 1 else "a segment that occurs once",
                todo="name one of them",
            )
        (whole,) = pieces

        def cut(length: int) -> Lines:
            """With so many characters."""
            part = whole.part(0, length) if self.keep == "start" else whole.part(len(whole.text) - length)
            return mapped(lines, lambda piece: [part] if piece is whole else [piece])

        if context.count(lines, whole.segment) <= self.tokens:
            return lines
        low, high = 1, len(whole.text)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if context.count(cut(middle), whole.segment) <= self.tokens else (low, middle)
        longer = range(min(len(whole.text) - 1, low + REACH), low, -1)  # half a word may be more tokens than all of it
        fits = (length for length in longer if context.count(cut(length), whole.segment) <= self.tokens)
        length = next(fits, low)
        if low == 1 and context.count(cut(length), whole.segment) > self.tokens:
            raise AttnscopeError(
                f"'{self.truncate}' can't be cut to {self.tokens} token{'s' * (self.tokens != 1)}: a single character "
                "has more",
                where=context.where,
                allowed=f"{context.count(cut(1), whole.segment)} tokens or more",
                todo="keep more tokens, or remove the prompt",
            )
        return cut(length)
