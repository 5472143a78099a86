"""How fast a set's share falls along a series of query groups: tokens, bins or turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from attnscope.quantities.quantity import Floats, Named, Quantity, Shares


class Decay(Quantity):
    """How much a class's share falls per group of a series, such as per turn or per token of the answer.

    It is minus the least-squares slope of the share over the groups of a prompt: positive where the share falls. Only
    the trend counts; a trajectory shows the course. It is not tested against 0, as every share falls where later
    queries see more tokens; compare conditions instead.
    """

    key: ClassVar[str] = "decay"
    unit: ClassVar[str] = "share per group"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    decay: str = Field(min_length=1, description="A class or set.")
    over: str = Field(min_length=1, description="A series of query groups, by its title or the name of its rule.")

    @property
    def title(self) -> str:
        return f"decay of {self.decay} over {self.over}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("decay",), self.decay

    @property
    def series(self) -> Iterator[Named]:
        yield ("over",), self.over

    def values(self, shares: Shares) -> Floats:
        groups = shares.series(self.over)
        course = np.stack([each.mass(self.decay) for each in groups.values()])  # (groups, prompts, layers, heads)
        place = np.where(np.isnan(course), np.nan, np.array(list(groups), dtype=np.float64)[:, None, None, None])
        count = (~np.isnan(course)).sum(0)
        x, y = (np.where(np.isnan(each), 0.0, each - _mean(each, count)) for each in (place, course))
        spread = (x**2).sum(0)
        slope = np.divide((x * y).sum(0), spread, out=np.full(count.shape, np.nan), where=(count > 1) & (spread > 0))
        return np.asarray(-slope, dtype=np.float64)


def _mean(values: Floats, count: Floats) -> Floats:
    total = np.nansum(values, 0)
    mean: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean
