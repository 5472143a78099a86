"""A number per prompt along an axis, such as the steps of a training: means with intervals, and differences.

Each point is a mean over prompts with Student's interval, as everywhere where means are shown. Its difference from the
first point of its line, or from another line's point, is paired by prompt and tested; q is over all differences of its
family.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.discoveries import discoveries
from attnscope.analysis.effects import Effects, effects
from attnscope.analysis.means import interval_of
from attnscope.analysis.spread import cut_to_differences

Floats = NDArray[np.float64]
Clusters = Callable[[NDArray[np.int64]], NDArray[np.int64]]

SCHEMA = {
    "panel": pl.String,
    "series": pl.String,
    "x": pl.Float64,
    "at": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "against": pl.String,
    "difference": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
    "q": pl.Float64,
    "floor": pl.Float64,
}


@dataclass(frozen=True)
class Point:
    """A point of a line: one number per prompt. prompts: their numbers, each once; values: NaN where there is none."""

    panel: str
    series: str
    x: float
    at: str
    """The place on the axis in words, such as `step 200`."""
    prompts: NDArray[np.int64]
    values: Floats
    floor: float | None = None
    """How far rounding moves the mean; None if unknown."""
    bounds: tuple[float, float] = (-np.inf, np.inf)
    """Between which numbers a value can lie."""
    reference: Reference | None = None
    """What it is compared with; None for the first point of its line."""
    tested: bool = True
    """Whether the difference is tested: not if it follows from how the points were made."""
    family: Hashable = None
    """What it is tested together with: all points of this family."""
    null: float | None = None
    """Of values that are differences within prompts: what means "nothing there"; see `means.interval_of`."""

    @property
    def key(self) -> tuple[str, str, float]:
        return self.panel, self.series, self.x


@dataclass(frozen=True)
class Reference:
    """A point of another line. key: its panel, series and x; words: what to call it."""

    key: tuple[str, str, float]
    words: str


def trajectories(points: Sequence[Point], clusters: Clusters, *, seed: int = 0) -> pl.DataFrame:
    """The means of points and their changes since the first of their line; columns as in SCHEMA.

    points: those of a line in the order of its axis; one without any value is left out. clusters: the clusters of
    prompts, by their numbers.
    """
    known = [each for each in points if not np.isnan(each.values).all()]
    rows = [_mean(each, clusters, seed) for each in known]
    firsts: dict[tuple[str, str], Point] = {}
    for each in known:
        firsts.setdefault((each.panel, each.series), each)
    by_key = {each.key: each for each in known}
    pairs = []
    for place, each in enumerate(known):
        own = firsts[each.panel, each.series]
        other = own if each.reference is None else by_key.get(each.reference.key)
        if other is not None and other is not each:
            pairs.append((place, other))
    for (place, other), change in zip(pairs, _changes(known, pairs, clusters, seed), strict=True):
        floors, reference = (other.floor, known[place].floor), known[place].reference
        against = other.at if reference is None else reference.words
        rows[place] |= {"against": against, **change, "floor": None if None in floors else sum(filter(None, floors))}
    return pl.DataFrame(rows, schema=SCHEMA)


def _mean(point: Point, clusters: Clusters, seed: int) -> dict[str, object]:
    defined = ~np.isnan(point.values)
    values, mine = point.values[defined], clusters(point.prompts[defined])
    low, high = interval_of(values, mine, bounds=point.bounds, null=point.null, seed=seed)
    where = {"panel": point.panel, "series": point.series, "x": float(point.x), "at": point.at}
    numbers = {"value": float(values.mean()), "low": low, "high": high, "n": int(defined.sum())}
    return {**dict.fromkeys(SCHEMA), **where, **numbers}


def _changes(
    known: Sequence[Point], pairs: Sequence[tuple[int, Point]], clusters: Clusters, seed: int
) -> Iterator[dict[str, object]]:
    """Each of these points minus the other of its pair, within prompts; q is over those of one family."""
    found = [change_between(known[place], other, clusters, seed) for place, other in pairs]
    p = np.array([each.p[0] if known[place].tested else np.nan for each, (place, _) in zip(found, pairs, strict=True)])
    families = [known[place].family for place, _ in pairs]
    q = np.full(len(pairs), np.nan)
    for family in dict.fromkeys(families):
        members = [place for place, each in enumerate(families) if each == family]
        q[members] = discoveries(p[members])
    for each, rate, (place, _) in zip(found, q, pairs, strict=True):
        low, high = cut_to_differences(each.low, each.high, known[place].bounds)
        ends = {"difference": each.mean, "difference_low": low, "difference_high": high}
        yield {**{name: _known(values[0]) for name, values in ends.items()}, "q": _known(rate)}


def change_between(point: Point, other: Point, clusters: Clusters, seed: int) -> Effects:
    """A point minus another, within the prompts of both."""
    prompts, mine, theirs = np.intersect1d(point.prompts, other.prompts, return_indices=True)
    apart = point.values[mine] - other.values[theirs]
    return effects(apart[:, None], clusters=clusters(prompts), seed=seed)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
