"""Table -> what the shades show: the tokens and the segment that receive most."""

from __future__ import annotations

import polars as pl

from attnscope.analysis.run import Run
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.strip.options import StripOptions
from attnscope.figures.kinds.strip.statistics import shown_prompt
from attnscope.figures.prose import Document, Strong, Text, by_panel, document


def look(run: Run, options: StripOptions, table: pl.DataFrame) -> Look:
    group = selection.queries(run, options)
    visible = "the queries that can see the token, " if options.over == "visible" else "all queries, "
    over = "" if group == "last" else visible
    number = shown_prompt(run, options)
    name = run.table("prompts").filter(pl.col("prompt") == number).select("name").first().collect().item()
    layers = selection.layers_words(run, options, options.models_of(run))
    return Look(
        title=options.title or "The prompt, shaded by attention received",
        y="attention received",
        caption=f"Attention from {selection.group_words(group)}, mean over {over}{layers} and "
        f"{selection.heads_words(run, options)}; one prompt (number {number}"
        f"{'' if name == str(number) else f', {name}'}). "
        "The scale ends at the second highest token; the highest has a frame."
        + (" Each panel has its own scale." if table["panel"].n_unique() > 1 else "")
        + (" Layers and heads are numbered from 1." if options.number_from else ""),
        number_from=options.number_from,
    )


def write(table: pl.DataFrame, look: Look) -> Document:
    numbers: list[Text] = []
    means: dict[str, str | None] = {}
    titles = list(dict.fromkeys(table["panel"]))
    for title in titles:
        tokens = table.filter(pl.col("panel") == title).drop_nulls("attention")
        top = tokens.sort("attention", descending=True, maintain_order=True).head(8)
        highest = [
            f"{row['token']!r} at {row['position']} {sentences.number(row['attention'])}"
            for row in top.iter_rows(named=True)
        ]
        numbers.append((Strong(title), f": highest {sentences.listed(highest)}."))
        if tokens["segment"].is_not_null().all():
            by = tokens.group_by("segment", maintain_order=True).agg(pl.col("attention").mean())
            means[title] = sentences.largest(dict(by.iter_rows()))
    return document(
        look.title,
        {
            "Overview": [
                "The text of a prompt, token by token, each shaded by the attention it receives.",
                look.caption,
            ],
            "Numbers": numbers,
            "Observations": by_panel(titles, {"Largest mean of a segment's tokens (not tested)": means}),
        },
    )
