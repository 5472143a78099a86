"""Means over prompts and their intervals: the prompt is the unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

CONFIDENCE = 0.95
CUT = ", cut at 0 and 1"  # what captions say of intervals of shares that reach beyond them
INTERVAL = "95 % interval of the mean over prompts (t)"


def mean_over_prompts(frame: pl.DataFrame, by: Sequence[str], value: str, clusters: Mapping[int, int]) -> pl.DataFrame:
    """Mean, low, high and n of each group. frame: one row per prompt in each group; a single cluster has no interval.

    clusters: of each prompt. The interval is Student's, for clusters of any size: see `bootstrap.Sample`.
    """
    sums = (
        frame.with_columns(cluster=pl.col("prompt").replace_strict(dict(clusters), return_dtype=pl.Int64))
        .group_by([*by, "cluster"], maintain_order=True)
        .agg(total=pl.col(value).sum(), size=pl.len())
    )
    mean = (pl.col("total").sum() / pl.col("size").sum()).alias(value)
    apart = pl.col("total") - pl.col("size") * pl.col("total").sum() / pl.col("size").sum()
    means = sums.group_by(list(by), maintain_order=True).agg(
        mean, squares=(apart**2).sum(), n=pl.col("size").sum().cast(pl.UInt32), clusters=pl.len()
    )
    factor = {count: float(half_width(count)) / (count - 1) ** 0.5 for count in set(means["clusters"]) if count > 1}
    factors = pl.col("clusters").replace_strict(factor, default=None, return_dtype=pl.Float64)
    half = factors * pl.col("clusters") * pl.col("squares").sqrt() / pl.col("n")
    return means.with_columns(low=pl.col(value) - half, high=pl.col(value) + half).drop("squares", "clusters")


def cut_to_shares(frame: pl.DataFrame, *ends: str) -> pl.DataFrame:
    """A share is between 0 and 1, and so is its mean: ends of intervals beyond that are moved there."""
    return frame.with_columns(pl.col(*ends).clip(0, 1))


def is_cut(mean: pl.Series, low: pl.Series, high: pl.Series) -> bool:
    """Whether `cut_to_shares` moved an end: an interval of some width would not end exactly at 0 or 1."""
    moved = ((low == 0) & (mean > 0)) | ((high == 1) & (mean < 1))
    return bool(moved.fill_null(False).any())


def half_width(n: NDArray[np.float64] | int) -> NDArray[np.float64]:
    """Half the width of the interval of a mean over n, in standard deviations; NaN for n below 2."""
    count = np.asarray(n, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        half: NDArray[np.float64] = np.where(count > 1, stdtrit(count - 1, (1 + CONFIDENCE) / 2) / count**0.5, np.nan)
    return half


def mean_of_seen(values: NDArray[np.float64], axis: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Mean over some axes, ignoring NaN (what no query sees); NaN where nothing is left."""
    seen = ~np.isnan(values)
    total, count = np.where(seen, values, 0).sum(axis), seen.sum(axis)
    mean: NDArray[np.float64] = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean


def extent(values: pl.Series) -> tuple[float, float]:
    """The smallest and the largest value."""
    numbers = values.to_numpy()
    return float(numbers.min()), float(numbers.max())
