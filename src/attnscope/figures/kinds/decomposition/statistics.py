"""Run -> change, dilution and redistribution of each class, for each comparison of conditions."""

from __future__ import annotations

import polars as pl

from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import Comparison, comparisons
from attnscope.analysis.run import Run
from attnscope.analysis.sides import DILUTION, MASS, REDISTRIBUTION, SPLIT
from attnscope.errors import AttnscopeError
from attnscope.figures import selection
from attnscope.figures.kind import Column
from attnscope.figures.kinds.decomposition.options import DecompositionOptions

COLUMNS = (
    Column("panel", pl.String, "what is compared, such as 'filler minus none'; in order"),
    Column("token_class", pl.String, "the class; in order"),
    Column("quantity", pl.String, "change, dilution or redistribution"),
    Column("value", pl.Float64, "mean over heads and prompts"),
    Column("low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Column("q", pl.Float64, "its false discovery rate among the panel's classes", optional=True, gaps=True),
    Column("floor", pl.Float64, "what rounding causes on average", optional=True, gaps=True),
    Column("up", pl.Int64, "heads in which it rises significantly", optional=True, gaps=True),
    Column("down", pl.Int64, "heads in which it falls significantly", optional=True, gaps=True),
    Column("heads", pl.Int64, "how many heads there are", optional=True, gaps=True),
    Column("n", pl.Int64, "how many prompts", optional=True),
)
KEYS = ("panel", "token_class", "quantity")
CHANGE = "change"
"""Of the class's mass, with the statistics that comparisons give it."""
QUANTITIES = (CHANGE, DILUTION, REDISTRIBUTION)


def table(run: Run, options: DecompositionOptions) -> pl.DataFrame:
    panels = [_panel(run, options, comparison) for comparison in _comparisons(run, options)]
    rows = pl.concat(panels) if panels else pl.DataFrame()
    if not len(rows):
        raise AttnscopeError(
            "there is no change to split into dilution and redistribution",
            where=f"figure {options.name}",
            allowed="the base prompt, conditions that insert something, and classes without inserted tokens",
            todo="add these to the study",
        )
    return rows


def _panel(run: Run, options: DecompositionOptions, comparison: Comparison) -> pl.DataFrame:
    overall = compare(comparison).overall.with_columns(pl.col("quantity").replace(MASS, CHANGE))
    rows = overall.filter(pl.col("queries") == SPLIT, pl.col("quantity").is_in(list(QUANTITIES)), pl.col("n") > 0)
    split = set(rows.filter(pl.col("quantity") == DILUTION)["token_class"])
    shown = [name for name in selection.classes(run, options) if name in split]
    places = {name: place for place, name in enumerate(shown)}
    order = {quantity: place for place, quantity in enumerate(QUANTITIES)}
    return (
        rows.filter(pl.col("token_class").is_in(shown))
        .sort(pl.col("token_class").replace_strict(places), pl.col("quantity").replace_strict(order))
        .with_columns(
            panel=pl.lit(_title(run, options, comparison)),
            token_class=pl.col("token_class").replace_strict({n: selection.class_label(run, n) for n in shown}),
            value=pl.col("difference"),
        )
        .select(column.name for column in COLUMNS)
    )


def _comparisons(run: Run, options: DecompositionOptions) -> list[Comparison]:
    """Those of conditions with each other that the figure shows."""
    labels, shown = options.models_of(run), set(options.conditions_of(run))
    return [
        each
        for each in comparisons(run)
        if each.kind in ("condition", "control")
        and each.one.model in labels
        and {each.one.condition, each.two.condition} <= shown
    ]


def _title(run: Run, options: DecompositionOptions, comparison: Comparison) -> str:
    one, two = (selection.condition_label(run, side.condition) for side in (comparison.one, comparison.two))
    title = f"{two} minus {one}"
    return f"{comparison.one.model}: {title}" if len(options.models_of(run)) > 1 else title
