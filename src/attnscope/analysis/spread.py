"""Means over prompts and how sure they are: the prompt is the unit."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from scipy import stats

CONFIDENCE = 0.95
INTERVAL = "95 % interval of the mean over prompts (t)"


def mean_over_prompts(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Frame has one row a prompt within each `by` -> value, low, high, n; no interval where there is one prompt."""
    found = frame.group_by(list(by), maintain_order=True).agg(
        pl.col(value).mean().alias(value), pl.col(value).std().alias("deviation"), pl.len().alias("n")
    )
    factor = {n: float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) / n**0.5 for n in set(found["n"]) if n > 1}
    half = pl.col("deviation") * pl.col("n").replace_strict(factor, default=None, return_dtype=pl.Float64)
    return found.with_columns(low=pl.col(value) - half, high=pl.col(value) + half).drop("deviation")


def extent(values: pl.Series) -> tuple[float, float]:
    """The least and the largest of some numbers."""
    found = values.to_numpy()
    return float(found.min()), float(found.max())
