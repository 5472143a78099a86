"""Writes reference/symbols.csv: the mean of the readings in reference/symbols-readings.csv, with their spread."""

from __future__ import annotations

from pathlib import Path

import polars as pl

REFERENCE = Path(__file__).resolve().parent.parent / "reference"
LABELS = {"whitespace": "Whitespace", "star": "* (Star)", "hash": "# (Hash)"}
COLOURS = {"whitespace": "#c8c8c8", "star": "#4393c3", "hash": "#b2182b"}
MODELS = ["Qwen-Phys", "Qwen-Instruct"]


def symbols() -> pl.DataFrame:
    """The table of a bar chart; low and high are the lowest and the highest reading."""
    rows = pl.read_csv(REFERENCE / "symbols-readings.csv", schema_overrides={"reading": pl.String})
    keys = ["layer", "model"]
    totals = rows.group_by(*keys, "reading").agg(pl.col("mass").sum()).group_by(keys)
    whole = totals.agg(total_low=pl.col("mass").min(), total_high=pl.col("mass").max())
    parts = rows.group_by(*keys, "token_class").agg(
        low=pl.col("mass").min(), high=pl.col("mass").max(), n=pl.len(), mass=pl.col("mass").mean()
    )
    order = {name: place for place, name in enumerate(LABELS)}
    return (
        parts.join(whole, on=keys)
        .sort(
            "layer",
            pl.col("model").replace_strict({name: place for place, name in enumerate(MODELS)}),
            pl.col("token_class").replace_strict(order),
        )
        .select(
            group=pl.lit("Layer ") + pl.col("layer").cast(pl.String),
            bar="model",
            token_class=pl.col("token_class").replace_strict(LABELS),
            mass=pl.col("mass").round(6),
            low="low",
            high="high",
            total_low=pl.col("total_low").round(6),
            total_high=pl.col("total_high").round(6),
            n="n",
            colour=pl.col("token_class").replace_strict(COLOURS),
        )
    )


if __name__ == "__main__":
    symbols().write_csv(REFERENCE / "symbols.csv")
