"""The items of a list in another order: `order: {of: passages, by: reversed}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.edits.prompt.edit import EditContext, EditProblem, Lines, PromptEdit, segment_problem
from attnscope.edits.prompt.parts import chosen, mapped, pieces_of
from attnscope.errors import AttnscopeError
from attnscope.spec import Spec, Whole
from attnscope.text.layout import Layout
from attnscope.text.segments import Piece

Ordering = Literal["shuffled", "reversed"]


class OrderSpec(Spec):
    """Which list, and how."""

    of: str = Field(min_length=1, description="The list, such as passages.")
    by: Ordering | list[Whole] = Field(
        description="shuffled (at random, drawn for every prompt; with few items it may be the order they have), "
        "reversed, or numbers of the items from 1, "
        "such as [3, 1, 2]."
    )


class Order(PromptEdit):
    """Puts the items of a list into another order. Each stays the same segment, wherever it stands."""

    key: ClassVar[str] = "order"
    may_insert: ClassVar[bool] = False

    order: OrderSpec = Field(
        description="`of`: the list, such as passages; `by`: shuffled (at random, drawn per prompt; with few items it "
        "may be the order they have), reversed, or numbers of the items from 1, such as [3, 1, 2]."
    )

    @property
    def is_random(self) -> bool:
        return self.order.by == "shuffled"

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        yield from segment_problem("order", self.order.of, layout)
        by = self.order.by
        if isinstance(by, list) and sorted(by) != list(range(1, len(by) + 1)):
            yield EditProblem("order", f"{by} is not an order", "every number from 1 once, such as [3, 1, 2]")

    def named_segments(self) -> Iterator[tuple[str, str]]:
        yield "order", self.order.of

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        names = chosen(lines, self.order.of, context)
        if len(names) < 2:
            raise AttnscopeError(
                f"'{self.order.of}' has one item, so it has only one order",
                where=context.where,
                allowed="lists of two or more items",
                todo="remove the prompt, or the edit",
            )
        items = {name: [piece for piece in pieces_of(lines) if piece.segment == name] for name in names}
        new = dict(zip(names, self._ordered(names, context), strict=True))
        seen: set[str] = set()

        def placed(piece: Piece) -> list[Piece]:
            if piece.segment not in new:
                return [piece]
            first = piece.segment not in seen  # an item in several pieces moves as a whole
            seen.add(piece.segment)
            return items[new[piece.segment]] if first else []

        return mapped(lines, placed)

    def _ordered(self, names: list[str], context: EditContext) -> list[str]:
        by = self.order.by
        if by == "reversed":
            return names[::-1]
        if by == "shuffled":
            shuffled = list(names)
            context.rng(0).shuffle(shuffled)
            return shuffled
        if len(by) != len(names):
            raise AttnscopeError(
                f"'{self.order.of}' has {len(names)} items, and the order names {len(by)}",
                where=context.where,
                allowed=f"an order of {len(names)} items",
                todo="give every item its place, or use shuffled or reversed",
            )
        return [names[int(number) - 1] for number in by]
