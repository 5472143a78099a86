"""Run -> the tokens of one prompt, each with the attention it receives."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import polars as pl

from attnscope.analysis.dense import token_rows
from attnscope.analysis.received import HeadChoice, read_attention
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import selection
from attnscope.figures.kind import Column
from attnscope.figures.kinds.strip.options import StripOptions
from attnscope.text.tokens import shown_texts

COLUMNS = (
    Column("panel", pl.String, "the panel's title; in order"),
    Column("position", pl.Int64, "the token's position"),
    Column("token", pl.String, "its text", gaps=True),
    Column("attention", pl.Float64, "its shade; empty where no query sees the token", gaps=True),
    Column("segment", pl.String, "the segment of the prompt it belongs to", optional=True),
)
KEYS = ("panel", "position")


def table(run: Run, options: StripOptions) -> pl.DataFrame:
    number = shown_prompt(run, options)
    panels = [
        _panel(run, options, model, name, number)
        for model in options.models_of(run)
        for name in options.conditions_of(run)
    ]
    return pl.concat(panels).select(column.name for column in COLUMNS)


def _panel(run: Run, options: StripOptions, model: str, condition: str, number: int) -> pl.DataFrame:
    tokens = token_rows(run, model, condition, ["position", "segment", "text", "start", "end"], number)
    if not len(tokens):
        raise AttnscopeError(
            f"prompt {number} was not measured on {model} under {condition}",
            where=f"figure {options.name}: prompt",
            allowed="prompts of the run that were not dropped",
            todo="choose another",
        )
    layers, heads = selection.layers(run, options, model), selection.heads(run, options, model)
    chosen = HeadChoice(model, selection.queries(run, options), layers, heads, options.over)
    received = next(read_attention(run, chosen, condition, number), None)
    attention = None if received is None else mean_of_seen(received.attention, (0, 1))
    if attention is None or np.isnan(attention).all():
        lacks = "has no such queries" if attention is None else "leaves nothing: its queries see removed tokens alone"
        raise AttnscopeError(
            f"'{chosen.queries}' has no attention to show: prompt {number} of {model} under {condition} {lacks}",
            where=f"figure {options.name}: prompt",
            allowed="prompts in which the query group has some attention",
            todo="choose another prompt or query group",
        )
    shown = shown_texts(tokens.select("text", "start", "end").iter_rows())
    return tokens.select(
        pl.col("position").cast(pl.Int64),
        "segment",
        panel=pl.lit(selection.title(run, options, model, condition)),
        token=pl.Series(shown, dtype=pl.String),
        attention=pl.Series(attention).fill_nan(None),
    )


def shown_prompt(run: Run, options: StripOptions) -> int:
    """The one asked for, or the first that has the query group in the most models and conditions shown."""
    if options.prompt is not None:
        return options.prompt
    sides = [side for side in product(options.models_of(run), options.conditions_of(run)) if run.has(*side)]
    queries = selection.queries(run, options)
    counts = Counter(number for side in sides for number in run.having(*side, queries))
    if not counts:
        raise AttnscopeError(
            f"no prompt has the query group '{queries}'",
            where=f"figure {options.name}: queries",
            allowed="query groups that some prompt has",
            todo="choose another",
        )
    return min(counts, key=lambda number: (-counts[number], number))
