"""A kind of figure: how many tokens the prompts of each model and condition have."""

from __future__ import annotations

import altair as alt
import polars as pl
from pydantic import Field

from attnscope.analysis.run import Run
from attnscope.figures import Column, Kind, Look
from attnscope.figures.compose import Description
from attnscope.figures.options import Options
from attnscope.figures.prose import Document, document


class LengthOptions(Options):
    """Dots, one per prompt."""

    least: int = Field(0, ge=0, description="Leave out prompts with fewer tokens.")


def _table(run: Run, options: LengthOptions) -> pl.DataFrame:
    tokens = run.table("tokens").group_by("model", "condition", "prompt", maintain_order=True).len("tokens").collect()
    return tokens.filter(pl.col("tokens") >= options.least).cast({"tokens": pl.Int64})


def _draw(table: pl.DataFrame, look: Look) -> Description:
    chart = alt.Chart(table).mark_circle().encode(x="tokens:Q", y="condition:N", row="model:N")
    return chart.properties(title=look.title).to_dict()


def _write(table: pl.DataFrame, look: Look) -> Document:
    longest = max(table["tokens"].to_list(), default=0)
    return document(look.title, {"Numbers": [f"The longest prompt has {longest} tokens."]})


LENGTHS = Kind(
    name="lengths",
    about="how long prompts are",
    options=LengthOptions,
    columns=(
        Column("model", pl.String, "the model's label"),
        Column("condition", pl.String, "the condition's name"),
        Column("prompt", pl.Int64, "the prompt's number"),
        Column("tokens", pl.Int64, "how many tokens it has"),
    ),
    keys=("model", "condition", "prompt"),
    table=_table,
    look=lambda run, options, table: Look(title=options.title or "Length of prompts"),
    chart=_draw,
    prose=_write,
)
