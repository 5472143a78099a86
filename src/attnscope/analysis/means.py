"""Means over prompts with their intervals, group by group of a table: the prompt is the unit, or its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.bootstrap import Sample
from attnscope.analysis.effects import effects
from attnscope.analysis.run import Run
from attnscope.analysis.spread import Bounds

BY_T, BY_DRAWS = "95 % interval of the mean over prompts (t)", "95 % interval of the mean over prompts (bootstrap)"


def null_of(run: Run, names: Sequence[str]) -> float | None:
    """The value of what is shown that means "nothing there", if there is one: it is then tested against it."""
    quantity = run.study.quantities.get(names[0]) if len(names) == 1 else None
    return None if quantity is None else quantity.null


def interval_name(run: Run, names: Sequence[str]) -> str:
    """How `interval_of` comes about, for captions."""
    return BY_T if null_of(run, names) is None else BY_DRAWS


def interval_of(
    values: NDArray[np.float64],
    clusters: NDArray[np.int64],
    *,
    bounds: Bounds,
    null: float | None = None,
    seed: int = 0,
) -> tuple[float | None, float | None]:
    """The ends of the interval of a mean of (prompts,) values; None where there would be no test either.

    Student's; of what is a difference within prompts and tested against null, the interval that agrees with the test.
    """
    if null is None:
        sample = Sample.of(values[:, None], clusters)
        ends = sample.mean - sample.half_width, sample.mean + sample.half_width
    else:
        change = effects(values[:, None] - null, clusters=clusters, seed=seed)
        ends = change.low + null, change.high + null
    low, high = (None if np.isnan(end[0]) else float(np.clip(end[0], *bounds)) for end in ends)
    return low, high


def mean_over_prompts(frame: pl.DataFrame, by: Sequence[str], value: str, clusters: Mapping[int, int]) -> pl.DataFrame:
    """Mean, low, high and n of each group. frame: one row per prompt in each group; clusters: of each prompt.

    Prompts whose value is null are left out; a group without any value has no mean. The interval is Student's, by
    cluster. There is none below six clusters, or if a few have most of the prompts.
    """
    groups = frame.select(by).unique(maintain_order=True).with_row_index("_group")
    rows = frame.join(groups, on=list(by), how="left", maintain_order="left", nulls_equal=True)
    prompts, at = np.unique(rows["prompt"].to_numpy(), return_inverse=True)
    values = np.full((len(prompts), len(groups)), np.nan)
    values[at, rows["_group"].to_numpy()] = rows[value].to_numpy()
    sample = Sample.of(values, np.array([clusters[int(prompt)] for prompt in prompts], dtype=np.int64))
    ends = {"low": sample.mean - sample.half_width, "high": sample.mean + sample.half_width}
    return groups.drop("_group").with_columns(
        pl.Series(value, sample.mean).fill_nan(None),
        pl.Series("n", sample.sizes.sum(0)).cast(pl.UInt32),
        *(pl.Series(name, end).fill_nan(None) for name, end in ends.items()),
    )
