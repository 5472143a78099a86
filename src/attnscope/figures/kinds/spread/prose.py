"""Table -> what the dots show: the mean, median and range of each row, and which row is highest."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnscope.analysis.means import interval_name
from attnscope.analysis.run import Run
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.spread.options import SpreadOptions
from attnscope.figures.prose import Document, Strong, Text, by_panel, document


def look(run: Run, options: SpreadOptions, table: pl.DataFrame) -> Look:
    measures = options.measures or selection.classes(run, options)
    summed = len(options.measures) > 1
    whose = selection.whose_words(run, selection.queries(run, options), measures[0])
    layers, heads = selection.layers_words(run, options, options.models_of(run)), selection.heads_words(run, options)
    relative = ", relative to uniform attention" if options.value == "enrichment" else ""
    counts = table.group_by("panel", "series").len()["len"]
    words = selection.measure_words(run, options.measures[0]) if options.measures else None
    how = interval_name(run, options.measures or ())
    bar = selection.interval_words("bar", table["mean"], table["low"], table["high"], counts, interval=how)
    return Look(
        title=options.title or "From prompt to prompt",
        y=options.y or words or f"share of attention{relative}",
        caption=f"Attention from {whose}, {layers} and {heads}; each dot is one prompt of n = "
        f"{selection.prompts_words(run, counts)}, and its height within a row has no meaning; tick: mean; {bar}."
        + selection.lacking_words(run, options, measures, counts, summed=summed)
        + (" Layers and heads are numbered from 1." if options.number_from else ""),
        number_from=options.number_from,
    )


def write(table: pl.DataFrame, look: Look) -> Document:
    numbers: list[Text] = []
    largest: dict[str, str | None] = {}
    for title in dict.fromkeys(table["panel"]):
        means: dict[str, float] = {}
        for name in dict.fromkeys(table.filter(pl.col("panel") == title)["series"]):
            row = table.filter(pl.col("panel") == title, pl.col("series") == name)
            first: dict[str, Any] = row.row(0, named=True)
            mean: Any = row["value"].mean()
            means[name] = float(mean) if first["mean"] is None else first["mean"]
            numbers.append((Strong(f"{title}, {name}"), f": {_numbers(row, first, means[name])}"))
        largest[title] = sentences.largest(means)
    panels, rows = (list(dict.fromkeys(table[name])) for name in ("panel", "series"))
    return document(
        look.title,
        {
            "Overview": [
                f"Rows of dots, one per prompt, in {sentences.counted(len(panels), 'panel')} "
                f"({sentences.listed(panels)}): {sentences.listed(rows)}.",
                look.caption,
            ],
            "Axes": [f"Horizontal: {look.y or 'value'}; every panel has its own scale."],
            "Numbers": numbers,
            "Observations": by_panel(panels, {"Largest mean of a row (not tested)": largest}),
        },
    )


def _numbers(row: pl.DataFrame, first: dict[str, Any], mean: float) -> str:
    least, most = (row.sort("value", descending=down).row(0, named=True) for down in (False, True))
    middle: Any = row["value"].median()
    return (
        f"mean {sentences.with_interval(mean, first['low'], first['high'])}, median {sentences.number(middle)}, from "
        f"{sentences.number(least['value'])} (prompt {least['prompt']}) to {sentences.number(most['value'])} (prompt "
        f"{most['prompt']}), {sentences.counted(len(row), 'prompt')}."
    )
