"""Means over prompts with their intervals, group by group of a table: the prompt is the unit, or its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from attnscope.analysis.bootstrap import Sample


def mean_over_prompts(frame: pl.DataFrame, by: Sequence[str], value: str, clusters: Mapping[int, int]) -> pl.DataFrame:
    """Mean, low, high and n of each group. frame: one row per prompt in each group; clusters: of each prompt.

    The interval is Student's, by cluster. There is none with a single cluster, or if a few have most of the prompts.
    """
    groups = frame.select(by).unique(maintain_order=True).with_row_index("_group")
    rows = frame.join(groups, on=list(by), how="left", maintain_order="left", nulls_equal=True)
    prompts, at = np.unique(rows["prompt"].to_numpy(), return_inverse=True)
    values = np.full((len(prompts), len(groups)), np.nan)
    values[at, rows["_group"].to_numpy()] = rows[value].to_numpy()
    sample = Sample.of(values, np.array([clusters[int(prompt)] for prompt in prompts], dtype=np.int64))
    ends = {"low": sample.mean - sample.half_width, "high": sample.mean + sample.half_width}
    return groups.drop("_group").with_columns(
        pl.Series(value, sample.mean),
        pl.Series("n", sample.sizes.sum(0)).cast(pl.UInt32),
        *(pl.Series(name, end).fill_nan(None) for name, end in ends.items()),
    )
