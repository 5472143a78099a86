"""Another measure of keys, summed over a set: a retrieval score."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from attnscope.measures import MEASURES
from attnscope.quantities.quantity import Floats, Named, Quantity, Shares


class Measured(Quantity):
    """The sum over a class of a measure that has one number per key.

    `copied` on the needle, from the rows that write the answer, is the retrieval score: how often a head's largest
    weight is on a token of the needle, and that token is the one being written.
    """

    key: ClassVar[str] = "measured"
    source: ClassVar[str] = "Wu et al. 2024, Retrieval Head Mechanistically Explains Long-Context Factuality"

    measured: str = Field(min_length=1, description="A measure with one number per key, such as copied or top1.")
    of: str = Field(min_length=1, description="A class or set.")

    @property
    def limits(self) -> tuple[float, float]:
        is_share = MEASURES.find(self.measured, "measure").unit.startswith("share")
        return self.bounds if is_share else (-math.inf, math.inf)

    @property
    def title(self) -> str:
        return f"{self.measured} on {self.of}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("of",), self.of

    @property
    def measures(self) -> Iterator[Named]:
        yield ("measured",), self.measured

    def values(self, shares: Shares) -> Floats:
        return shares.mass(self.of, self.measured)
