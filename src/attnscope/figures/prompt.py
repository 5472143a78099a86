"""Pictures of one record: class mass layer by layer, and attention along the prompt."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from attnscope.arguments import counted
from attnscope.figures.selection import PALETTE, told_apart
from attnscope.records import Record
from attnscope.text.classes import OTHER

WIDTH = 720


def mass_by_layer(record: Record, classes: Mapping[str, str]) -> alt.VConcatChart:
    """Stacked bars, one per layer, one panel per query group; a tick where uniform attention would put the total."""
    names = list(classes)
    table = (
        record.mass(classes)
        .filter(pl.col("token_class") != OTHER)
        .group_by("queries", "layer", "token_class", maintain_order=True)
        .agg(pl.col("mass", "expected").mean())
        .with_columns(pl.col("token_class").replace_strict({name: i for i, name in enumerate(names)}).alias("order"))
    )
    colours = alt.Scale(domain=names, range=list(told_apart(dict.fromkeys(names), PALETTE).values()))
    panels = []
    for queries in record.queries:
        part = table.filter(pl.col("queries") == queries)
        layer = alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0))
        bars = (
            alt.Chart(part)
            .mark_bar()
            .encode(
                x=layer,
                y=alt.Y("mass:Q", title="share of attention"),
                color=alt.Color("token_class:N", title="class", scale=colours, sort=names),
                order="order:Q",
                tooltip=[
                    "layer",
                    "token_class",
                    alt.Tooltip("mass", format=".4f"),
                    alt.Tooltip("expected", format=".4f"),
                ],
            )
        )
        uniform = (
            alt.Chart(part.group_by("layer", maintain_order=True).agg(pl.col("expected").sum()))
            .mark_tick(color="black", thickness=1.5)
            .encode(x=layer, y="expected:Q", tooltip=[alt.Tooltip("expected", title="uniform attention", format=".4f")])
        )
        title = alt.Title(
            f"Where attention lands, by kind of token: queries {queries}",
            subtitle=f"{record.evidence['model']}, {counted(len(record.tokens), 'token')}, one prompt, mean over "
            f"{counted(len(record.heads), 'head')}; black tick: uniform attention",
            anchor="start",
        )
        panels.append(alt.layer(bars, uniform).properties(width=WIDTH, height=240, title=title))
    return alt.vconcat(*panels)


def received_along_prompt(record: Record) -> alt.VConcatChart:
    """Attention received by each key, mean over layers and heads, one panel per query group."""
    panels = []
    for group, queries in enumerate(record.queries):
        received = record.received[:, :, group].mean((0, 1))
        table = pl.DataFrame(
            {
                "position": [token.position for token in record.tokens],
                "token": [repr(token.text) for token in record.tokens],
                "received": received.astype(float),
            }
        )
        title = alt.Title(
            f"Attention received along the prompt: queries {queries}",
            subtitle=f"{record.evidence['model']}, {counted(len(record.tokens), 'token')}, one prompt, mean over "
            f"{counted(len(record.layers), 'layer')} and {counted(len(record.heads), 'head')}",
            anchor="start",
        )
        panels.append(
            alt.Chart(table)
            .mark_bar(width=max(1, WIDTH // (len(table) + 1) - 1))
            .encode(
                x=alt.X("position:Q", title="token position", axis=alt.Axis(tickMinStep=1)),
                y=alt.Y("received:Q", title="share of attention"),
                tooltip=["position", "token", alt.Tooltip("received", format=".4f")],
            )
            .properties(width=WIDTH, height=200, title=title)
        )
    return alt.vconcat(*panels)
