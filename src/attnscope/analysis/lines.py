"""Attention along the prompt: what each token receives from one head, averaged over prompts at matching positions."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_over_prompts

REACHED = 0.5  # of the prompts must be so long for a position to be shown


def by_token(
    run: Run,
    queries: str,
    model: str,
    layers: Sequence[int],
    heads: Sequence[int],
    conditions: Sequence[str],
    *,
    over: str,
) -> pl.DataFrame:
    """One row a key with `attention` (over: the queries that can see it, or all), base_position and segment."""
    received = run.received(queries, model=model, layers=layers, heads=heads, conditions=conditions)
    attention = pl.col("received").cast(pl.Float64)
    if over == "visible":
        attention = pl.when(pl.col("seen") > 0).then(attention / pl.col("seen").cast(pl.Float64))
    tokens = (
        run.table("tokens")
        .filter(pl.col("model") == model, pl.col("condition").is_in(list(conditions)))
        .select("condition", "prompt", "position", "base_position", "segment")
        .collect()
    )
    return received.with_columns(pl.col("position").cast(pl.Int32), attention=attention).join(
        tokens, on=["condition", "prompt", "position"], how="left", maintain_order="left"
    )


def along_prompt(
    run: Run, queries: str, model: str, layer: int, head: int, conditions: Sequence[str], *, shared: bool, over: str
) -> pl.DataFrame:
    """condition, position, attention, low, high, n, inserted; shared: by base position, without what was inserted."""
    rows = by_token(run, queries, model, [layer], [head], conditions, over=over)
    if shared:
        common = _common(rows, conditions)
        rows = rows.join(common, on=["prompt", "base_position"], how="semi").with_columns(position="base_position")
    rows = rows.filter(pl.col("attention").is_not_null())
    found = mean_over_prompts(rows, ["condition", "position"], "attention")
    inserted = rows.group_by("condition", "position").agg(inserted=(pl.col("segment") == "inserted").mean() > 0.5)
    order = {name: place for place, name in enumerate(conditions)}
    return (
        found.join(inserted, on=["condition", "position"])
        .filter(pl.col("n") >= REACHED * pl.col("n").max().over("condition"))
        .sort(pl.col("condition").replace_strict(order), "position")
        .with_columns(pl.col("position").cast(pl.Int64), pl.col("n").cast(pl.Int64))
    )


def ranked(run: Run, queries: str, model: str, conditions: Sequence[str], *, over: str) -> dict[tuple[int, int], int]:
    """Every head's rank, from 1, by the mean distance between two conditions over the tokens they share."""
    one, two = conditions
    rows = by_token(run, queries, model, run.layers(model), run.heads(model), conditions, over=over)
    rows = rows.filter(pl.col("base_position").is_not_null(), pl.col("attention").is_not_null())
    keys = ["prompt", "layer", "head", "base_position"]
    pairs = rows.filter(pl.col("condition") == one).join(
        rows.filter(pl.col("condition") == two), on=keys, suffix="_two"
    )
    effect = (
        pairs.group_by("layer", "head", "prompt")
        .agg(distance=(pl.col("attention") - pl.col("attention_two")).abs().mean())
        .group_by("layer", "head")
        .agg(pl.col("distance").mean())
        .sort(["distance", "layer", "head"], descending=[True, False, False])
    )
    return {(row["layer"], row["head"]): place for place, row in enumerate(effect.iter_rows(named=True), 1)}


def _common(rows: pl.DataFrame, conditions: Sequence[str]) -> pl.DataFrame:
    """The base tokens that every one of the conditions has, prompt by prompt."""
    return (
        rows.filter(pl.col("base_position").is_not_null())
        .group_by("prompt", "base_position")
        .agg(pl.col("condition").n_unique().alias("held"))
        .filter(pl.col("held") == len(conditions))
    )
