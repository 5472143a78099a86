"""How many heads give a set more than a threshold: a sink rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from attnscope.quantities.quantity import Floats, Named, Quantity, Shares
from attnscope.spec import Real


class Rate(Quantity):
    """Whether a class receives more than a threshold, 1 or 0 per head; its mean over heads is the share of heads.

    With the first token and 0.3, from all queries, it is the sink rate.
    """

    key: ClassVar[str] = "rate"
    unit: ClassVar[str] = "share of heads"
    source: ClassVar[str] = "Gu et al. 2024, When Attention Sink Emerges in Language Models (threshold 0.3)"

    rate: str = Field(min_length=1, description="A class or set.")
    above: Real = Field(0.3, ge=0, lt=1, description="The threshold.")

    @property
    def title(self) -> str:
        return f"heads with more than {self.above:g} on {self.rate}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("rate",), self.rate

    def values(self, shares: Shares) -> Floats:
        mass = shares.mass(self.rate)
        return np.where(np.isnan(mass), np.nan, np.where(np.nan_to_num(mass) > self.above, 1.0, 0.0))
