"""Table -> stacked bars with the interval of each whole bar, its enrichment, and a dagger where it differs.

Parts that are means over different prompts don't add up: they are drawn side by side, each with its own interval.
"""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import IN_LAYERS
from attnscope.figures import selection
from attnscope.figures.compose import Description, faceted, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.bars.prose import are_stacked, differs, times_uniform
from attnscope.study.schema import COLOUR

DIFFERS = "†"
GRAY = "#9a9a9a"
STEP, GAP = 34, 20  # a bar's width, and the space between groups


def draw(table: pl.DataFrame, look: Look) -> Description:
    groups, bars, names = (list(dict.fromkeys(table[name])) for name in ("group", "bar", "token_class"))
    stacked = are_stacked(table)
    ends = ("total_low", "total_high") if stacked else ("low", "high")
    data = table.with_columns(
        order=pl.col("token_class").replace_strict({name: place for place, name in enumerate(names)}),
        top=pl.coalesce(ends[1], pl.col("mass").sum().over("group", "bar") if stacked else "mass"),
        label=_labels(table) if stacked else pl.Series([times_uniform([row]) for row in table.iter_rows(named=True)]),
        sure=pl.Series([differs(row) is not False for row in table.iter_rows(named=True)]),
    )
    x: list[Any] = [alt.X("bar:N", sort=bars, title=None, axis=_axis(table, bars))]
    x += [] if stacked else [alt.XOffset("token_class:N", sort=names)]
    layers = [_parts(table, x, look.y, stacked=stacked)]
    if table[ends[0]].is_not_null().any():
        low, high = (alt.Y(f"{end}:Q") for end in ends)
        tick = alt.Chart().mark_tick(color="black", thickness=1, size=7)
        whiskers = alt.Chart().mark_rule(color="black").encode(*x, low, alt.Y2(f"{ends[1]}:Q"))
        layers += [whiskers, tick.encode(*x, low), tick.encode(*x, high)]
    shade = alt.ColorValue(GRAY, condition={"test": "datum.sure", "value": "black"})
    above = alt.Chart().mark_text(fontSize=10, dy=-8)
    above = above.transform_filter("datum.order == 0") if stacked else above
    layers.append(above.encode(*x, alt.Y("top:Q"), alt.Text("label:N"), shade))
    counts = {group: table.filter(pl.col("group") == group)["bar"].n_unique() for group in groups}
    words = max(len(line) for group in groups for line in group.split(": "))  # a label's own lines, one above the other
    step = max(STEP if stacked else STEP * len(names), 7 * words // min(counts.values()))
    drawn = joined("layer", layers, data, width=alt.Step(step), height=260)
    apart: Any = alt.Undefined
    if min(counts.values()) < len(bars):  # no gaps for bars that a group does not have
        apart = alt.Resolve(scale=alt.ScaleResolveMap(x="independent"))
    across = sum(step * count + GAP for count in counts.values())
    title = selection.title_of(look, legend(table, look), max(60, across // 6))
    header = alt.Header(labelFontWeight="bold", labelExpr="split(datum.label, ': ')")
    by = alt.Column("group:N", sort=groups, title=None, header=header)
    return faceted(drawn, by, resolve=apart, title=title)


def _axis(table: pl.DataFrame, bars: list[str]) -> alt.Axis:
    """The bars' names below them, in their own colours where they have one."""
    given = table.select("bar", "bar_colour").unique(maintain_order=True)
    shades = [
        {"test": f"datum.label == {json.dumps(bar)}", "value": shade}
        for bar, shade in given.filter(pl.col("bar_colour").str.contains(COLOUR)).iter_rows()
    ]
    return alt.Axis(
        labelAngle=-35 if max(map(len, bars)) > 6 else 0,
        labelColor={"condition": shades, "value": "black"} if shades else alt.Undefined,
    )


def _parts(table: pl.DataFrame, x: list[Any], y: str, *, stacked: bool) -> alt.Chart:
    colours = selection.colours_of(table, "token_class", selection.PALETTE)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("group", "bar", "token_class")]
    tooltip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("mass", "expected")]
    colour = alt.Color(
        "token_class:N",
        sort=list(colours),
        scale=alt.Scale(domain=list(colours), range=list(colours.values())),
        legend=alt.Legend(title=None, orient="top"),
    )
    parts: alt.Chart = (
        alt.Chart()
        .mark_bar(stroke="white", strokeWidth=0.7)
        .encode(
            *x,
            alt.Y("mass:Q", title=y, stack="zero" if stacked else False),
            colour,
            alt.Order("order:Q"),
            tooltip,
        )
    )
    return parts


def legend(table: pl.DataFrame, look: Look) -> str:
    words = ""
    if table["expected"].is_not_null().any():
        words += f" x: {'the bar ' if are_stacked(table) else ''}relative to uniform attention."
    if table["q"].is_not_null().any():
        references = list(dict.fromkeys(table["against"].drop_nulls()))
        against = references[0] if len(references) == 1 else "the bar it is compared with"
        words += (
            f" {DIFFERS}: the whole bar differs from {against}, paired by prompt (q < {FALSE_DISCOVERIES} {IN_LAYERS})."
        )
        if any(differs(row) is False for row in table.iter_rows(named=True)):
            words += " Gray: not significant, or within rounding error."
    return words


def _labels(table: pl.DataFrame) -> pl.Series:
    """Above each bar, repeated for each of its parts: its enrichment, and a dagger where it differs."""
    bars: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.iter_rows(named=True):
        bars.setdefault((row["group"], row["bar"]), []).append(row)
    words = {place: times_uniform(rows) + (DIFFERS if differs(rows[0]) else "") for place, rows in bars.items()}
    return pl.Series([words[row["group"], row["bar"]] for row in table.iter_rows(named=True)], dtype=pl.String)
