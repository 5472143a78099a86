"""What intervals and means over prompts have in common: their confidence, ends cut to shares, numbers left out."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
"""Between which numbers a value lies."""

CONFIDENCE = 0.95
SHARES: Bounds = (0.0, 1.0)
CUT = ", cut at 0 and 1"  # what captions say of intervals of shares that reach beyond them


def cut_to_shares(frame: pl.DataFrame, *ends: str) -> pl.DataFrame:
    """A share is between 0 and 1, and so is its mean: ends of intervals beyond that are moved there."""
    return frame.with_columns(pl.col(*ends).clip(0, 1))


def cut_to_differences(low: Floats, high: Floats, bounds: Bounds = SHARES) -> tuple[Floats, Floats]:
    """A difference of two shares is between -1 and 1: ends of intervals beyond that are moved there.

    bounds: between which numbers each of the two lies, if they are no shares.
    """
    widest = bounds[1] - bounds[0]
    return np.clip(low, -widest, widest), np.clip(high, -widest, widest)


def is_cut(mean: pl.Series, low: pl.Series, high: pl.Series) -> bool:
    """Whether `cut_to_shares` moved an end: an interval of some width would not end exactly at 0 or 1."""
    moved = ((low == 0) & (mean > 0)) | ((high == 1) & (mean < 1))
    return bool(moved.fill_null(False).any())


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
