"""How much of the attention is on the context, compared with what was just written: the lookback ratio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from attnscope.quantities.quantity import Floats, Named, Quantity, Shares, ratio


class Lookback(Quantity):
    """The mean weight of a context token over that plus the mean weight of a token written since.

    Defined for one query: with `{each: writing}` it has a value per token of the answer, from the second one on. In a
    group of several queries it is the ratio of their mean weights. The two can't overlap.
    """

    key: ClassVar[str] = "lookback"
    relative: ClassVar[bool] = True
    source: ClassVar[str] = "Chuang et al. 2024, Lookback Lens"

    lookback: str = Field(min_length=1, description="The context: a class or set.")
    new: str = Field("answer", min_length=1, description="What was written since: a class or set.")

    @property
    def title(self) -> str:
        return f"lookback ratio of {self.lookback}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("lookback",), self.lookback
        yield ("new",), self.new

    @property
    def disjoint(self) -> Iterator[Named]:
        yield from self.token_sets

    def values(self, shares: Shares) -> Floats:
        context, new = shares.weight(self.lookback), shares.weight(self.new)
        return ratio(context, context + new)
