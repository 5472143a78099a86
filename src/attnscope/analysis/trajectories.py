"""A number per prompt along an axis, such as the steps of a training: means with intervals, changes since the start.

Each point is a mean over prompts with Student's interval, as everywhere where means are shown. Its change since the
first point of its line is paired by prompt and tested; q is over all changes of the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.bootstrap import Sample
from attnscope.analysis.effects import effects

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


def trajectories(points: Sequence[Point], clusters: Clusters, *, seed: int = 0) -> pl.DataFrame:
    """The means of points and their changes since the first of their line; columns as in SCHEMA.

    points: those of a line in the order of its axis; one without any value is left out. clusters: the clusters of
    prompts, by their numbers.
    """
    known = [each for each in points if not np.isnan(each.values).all()]
    rows = [_mean(each, clusters) for each in known]
    firsts: dict[tuple[str, str], Point] = {}
    for each in known:
        firsts.setdefault((each.panel, each.series), each)
    pairs = [(place, firsts[each.panel, each.series]) for place, each in enumerate(known)]
    later = [(place, first) for place, first in pairs if known[place] is not first]
    for (place, first), change in zip(later, _changes(known, later, clusters, seed), strict=True):
        floors = (first.floor, known[place].floor)
        rows[place] |= {"against": first.at, **change, "floor": None if None in floors else sum(filter(None, floors))}
    return pl.DataFrame(rows, schema=SCHEMA)


def _mean(point: Point, clusters: Clusters) -> dict[str, object]:
    defined = ~np.isnan(point.values)
    sample = Sample.of(point.values[defined][:, None], clusters(point.prompts[defined]))
    mean, half = float(sample.mean[0]), float(sample.half_width[0])
    low, high = (None if np.isnan(half) else float(np.clip(end, *point.bounds)) for end in (mean - half, mean + half))
    where = {"panel": point.panel, "series": point.series, "x": float(point.x), "at": point.at}
    return {**dict.fromkeys(SCHEMA), **where, "value": mean, "low": low, "high": high, "n": int(defined.sum())}


def _changes(
    known: Sequence[Point], later: Sequence[tuple[int, Point]], clusters: Clusters, seed: int
) -> Iterator[dict[str, object]]:
    """Each later point minus the first of its line, within prompts, all of them tested together."""
    if not later:
        return
    prompts = np.unique(np.concatenate([each.prompts for each in known]))
    apart = np.full((len(prompts), len(later)), np.nan)
    for column, (place, first) in enumerate(later):
        both, mine, theirs = np.intersect1d(known[place].prompts, first.prompts, return_indices=True)
        apart[np.searchsorted(prompts, both), column] = known[place].values[mine] - first.values[theirs]
    pools = [(known[place].panel, known[place].series) for place, _ in later]
    tested = effects(apart, clusters=clusters(prompts), pools=pools, seed=seed)
    names = {"difference": tested.mean, "difference_low": tested.low, "difference_high": tested.high, "q": tested.q}
    for column in range(len(later)):
        yield {name: _known(values[column]) for name, values in names.items()}


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
