"""A quantity: how many times as much one class receives as another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from attnscope.quantities import Named, Quantity, Shares
from attnscope.quantities.quantity import Floats, ratio


class Times(Quantity):
    """What a class receives, over what another one receives; undefined where that is nothing."""

    key: ClassVar[str] = "times"
    unit: ClassVar[str] = "times"
    bounds: ClassVar[tuple[float, float]] = (0.0, np.inf)

    times: str = Field(min_length=1, description="A class or set.")
    that_of: str = Field(min_length=1, description="The class or set to divide by.")

    @property
    def title(self) -> str:
        return f"{self.times} over {self.that_of}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("times",), self.times
        yield ("that_of",), self.that_of

    def values(self, shares: Shares) -> Floats:
        return ratio(shares.mass(self.times), shares.mass(self.that_of))
