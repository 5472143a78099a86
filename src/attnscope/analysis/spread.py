"""Means over prompts and their intervals: the prompt is the unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

CONFIDENCE = 0.95
CUT = ", cut at 0 and 1"  # what captions say of intervals of shares that reach beyond them
INTERVAL = "95 % interval of the mean over prompts (t)"


def mean_over_prompts(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Mean, low, high and n of each group. frame: one row per prompt in each group; a single prompt has no interval."""
    means = frame.group_by(list(by), maintain_order=True).agg(
        pl.col(value).mean().alias(value), pl.col(value).std().alias("deviation"), pl.len().alias("n")
    )
    factor = {n: float(half_width(n)) for n in set(means["n"]) if n > 1}
    half = pl.col("deviation") * pl.col("n").replace_strict(factor, default=None, return_dtype=pl.Float64)
    return means.with_columns(low=pl.col(value) - half, high=pl.col(value) + half).drop("deviation")


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
