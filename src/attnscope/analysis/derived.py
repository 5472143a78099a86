"""Derived quantities of a side, from the masses of its classes and sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, enrichment_of, masses
from attnscope.errors import AttnscopeError, near
from attnscope.quantities import QUANTITIES, Quantity
from attnscope.records import RECEIVED

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SideShares:
    """The attention of one side from one query group, for the prompts given; see `attnscope.quantities.Shares`."""

    side: Side
    queries: str
    prompts: tuple[int, ...]

    def mass(self, token_set: str, measure: str = RECEIVED) -> Floats:
        arrays = masses(self.side.run, self.side.model, self.side.condition, self.queries, measure)
        return self._placed(arrays.prompts, arrays.of([token_set])[0])

    def weight(self, token_set: str) -> Floats:
        arrays = masses(self.side.run, self.side.model, self.side.condition, self.queries)
        mass, expected = arrays.of([token_set])
        return self._placed(arrays.prompts, mass * enrichment_of(np.nan_to_num(expected)))

    def under(self, condition: str) -> SideShares:
        return replace(self, side=replace(self.side, condition=condition))

    def series(self, title: str) -> dict[int, SideShares]:
        known = self.side.run.series
        if title not in known:
            raise AttnscopeError(
                f"there is no series of query groups '{title}' in this run",
                where=str(self.side.run.path),
                allowed=near(title, known),
                todo="use one of these",
            )
        return {group.number or 0: replace(self, queries=group.name) for group in known[title]}

    def _placed(self, prompts: NDArray[np.int64], values: Floats) -> Floats:
        """Values of these prompts at the places of the prompts asked for; NaN for those that are not there."""
        placed = np.full((len(self.prompts), *values.shape[1:]), np.nan)
        _, mine, theirs = np.intersect1d(np.asarray(self.prompts), prompts, return_indices=True)
        placed[mine] = values[theirs]
        return placed


def derived_values(side: Side, queries: str, name: str) -> tuple[NDArray[np.int64], Floats]:
    """Prompts, and (prompts, layers, heads) of one of the study's quantities; NaN where it is undefined."""
    run, quantity = side.run, side.run.study.quantities[name]
    prompts = tuple(sorted(run.prompts(side.model, side.condition)))
    shape = len(prompts), len(run.layers(side.model)), len(run.heads(side.model))
    with QUANTITIES.blamed(quantity.key, "values"):
        values = np.asarray(quantity.values(SideShares(side, queries, prompts)), dtype=np.float64)
    if values.shape != shape or np.isinf(values).any():
        what = f"gives values of shape {values.shape}" if values.shape != shape else "gives infinite values"
        raise QUANTITIES.mistake(quantity.key, "values", what, f"numbers or NaN of shape {shape}")
    return np.asarray(prompts, dtype=np.int64), values


def groups_of(run: Run, quantity: Quantity) -> list[str]:
    """The query groups that a quantity is compared for: all that belong to no series.

    One that is made from a series has a single value, shown with the group that the series is taken from.
    """
    titles = [title for _, title in quantity.series]
    if not titles:
        return run.queries
    whole = run.study.measure.sources.get(titles[0])
    return [whole] if whole in run.queries else run.queries[:1]
