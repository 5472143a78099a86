"""Table -> stacked bars with the interval of each whole bar, its enrichment, and a dagger where it differs.

Parts that are means over different prompts don't add up: they are drawn side by side, each with its own interval.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import IN_LAYERS
from attnscope.figures import selection, sentences, strokes
from attnscope.figures.compose import Description, drawable, faceted, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.bars.prose import are_stacked, differs, times_uniform
from attnscope.study.schema import COLOUR

DIFFERS = "†"
GRAY = "#9a9a9a"
STEP, GAP = 34, 20  # pixels: a bar's width, and the space between groups
THIN, THINNEST = 16, 6  # the width of one that stands beside the other parts of its bar
PADDED = 1.25  # parts side by side and the space around them
WIDEST, HEIGHT = 1000, 260  # of a row of groups, and of each; what is beyond the row's end goes into a next one
NARROWEST = 360  # of title and legend
AXIS, SQUARE = 60, 28  # what the vertical axis takes, and a square of the legend with the space around it
LETTER, NARROW, SMALL = 7, 5.6, 10  # a letter's width in the name of a group and of a bar; a line's height above bars
SLOPE, LIMIT, LINE = 35, 180, 14  # of bars' names: degrees where they are long, their greatest length, a line's height
UPRIGHT, TURNED = 18, 40  # how high labels above bars are
SHORTEST = 20  # letters of a group's name that always stay on one line


@dataclass(frozen=True)
class _Sizes:
    """In pixels, and how many groups stand in a row."""

    part: float
    bar: float
    group: float
    columns: int


def draw(table: pl.DataFrame, look: Look) -> Description:
    groups, bars, names = (list(dict.fromkeys(table[name])) for name in ("group", "bar", "token_class"))
    stacked = are_stacked(table)
    sizes = _sizes(table, 1 if stacked else len(names), look.room or WIDEST)
    words = {group: _heading(group, sizes.group) for group in groups}
    headings = {group: "\n".join(lines) for group, lines in words.items()}
    ends = ("total_low", "total_high") if stacked else ("low", "high")
    data = table.with_columns(
        heading=pl.col("group").replace_strict(headings),
        order=pl.col("token_class").replace_strict({name: place for place, name in enumerate(names)}),
        top=pl.coalesce(ends[1], pl.col("mass").sum().over("group", "bar") if stacked else "mass"),
        label=_labels(table) if stacked else pl.Series([times_uniform([row]) for row in table.iter_rows(named=True)]),
        sure=pl.Series([differs(row) is not False for row in table.iter_rows(named=True)]),
    )
    x: list[Any] = [alt.X("bar:N", sort=bars, title=None, axis=_axis(table, bars, sizes.bar))]
    x += [] if stacked else [alt.XOffset("token_class:N", sort=names)]
    across = max(NARROWEST, sizes.columns * (sizes.group + GAP))
    highest = float(data["top"].max())  # type: ignore[arg-type]
    layers = [_parts(table, x, _y(look.y, highest, UPRIGHT if stacked else TURNED), across, stacked=stacked)]
    if table[ends[0]].is_not_null().any():
        low, high = (alt.Y(f"{end}:Q") for end in ends)
        tick = alt.Chart().mark_tick(color="black", thickness=1, size=min(7, sizes.part - 2))
        whiskers = alt.Chart().mark_rule(color="black").encode(*x, low, alt.Y2(f"{ends[1]}:Q"))
        layers += [whiskers, tick.encode(*x, low), tick.encode(*x, high)]
    if stacked or sizes.part >= SMALL:
        layers.append(_above(x, upright=stacked))
    drawn = joined("layer", layers, data, width=alt.Step(sizes.part), height=HEIGHT)
    apart = alt.Resolve(axis=alt.AxisResolveMap(x="independent"))  # each row has its own
    if table.group_by("group").agg(pl.col("bar").n_unique())["bar"].min() < len(bars):  # type: ignore[operator]
        apart = alt.Resolve(scale=alt.ScaleResolveMap(x="independent"))  # no gaps for bars that a group does not have
    title = selection.title_of(look, legend(table, look), int(across // 6))
    header = alt.Header(labelFontWeight="bold", labelExpr="split(datum.label, '\\n')")
    by = alt.Facet("heading:N", sort=list(headings.values()), title=None, header=header)
    spacing = {"column": GAP, "row": _below(bars, sizes.bar) + LINE * max(map(len, words.values())) + GAP}
    return faceted(drawn, by, columns=sizes.columns, spacing=spacing, bounds="flush", resolve=apart, title=title)


def _sizes(table: pl.DataFrame, parts: int, room: int) -> _Sizes:
    """parts: how many stand beside each other in a bar."""
    counts = table.group_by("group").agg(pl.col("bar").n_unique())["bar"].to_list()
    most, fewest = max(counts), min(counts)
    part: float = STEP if parts == 1 else max(THINNEST, min(THIN, int((room - AXIS) / (most * parts * PADDED))))
    around = 1 if parts == 1 else PADDED
    longest = min(SHORTEST, max(len(line) for group in set(table["group"]) for line in group.split(": ")))
    part = max(part, LETTER * longest / (fewest * parts * around))
    bar = part * parts * around
    fit = max(1, int((room - AXIS) // (most * bar + GAP)))
    rows = -(-len(counts) // fit)
    return _Sizes(part, bar, most * bar, -(-len(counts) // rows))


def _heading(group: str, width: float) -> list[str]:
    """A group's name above it: what is before a colon on lines of its own."""
    lines = [sentences.wrapped(line, max(SHORTEST, int(width / LETTER))) for line in group.split(": ")]
    return [each for line in lines for each in line]


def _y(title: str, highest: float, above: float) -> alt.Y:
    """The vertical axis, with room for what stands above the highest bar. above: in pixels."""
    scale = alt.Scale(domainMax=highest * (1 + above / HEIGHT)) if highest > 0 else alt.Undefined
    return alt.Y("mass:Q", title=sentences.wrapped(title, int(HEIGHT / LETTER)), scale=scale)


def _above(x: list[Any], *, upright: bool) -> alt.Chart:
    """The label above each bar; above parts side by side, there is only room for it when it is turned."""
    shade = alt.ColorValue(GRAY, condition={"test": "datum.sure", "value": "black"})
    words = alt.Chart().mark_text(fontSize=SMALL, dy=-8)
    if not upright:
        words = alt.Chart().mark_text(fontSize=SMALL, angle=270, align="left", baseline="middle", dx=4)
    words = words.transform_filter("datum.order == 0") if upright else words
    labelled: alt.Chart = words.encode(*x, alt.Y("top:Q"), alt.Text("label:N"), shade)
    return labelled


def _slanted(bars: Sequence[str], width: float) -> bool:
    return NARROW * max(map(len, bars)) > width


def _below(bars: Sequence[str], width: float) -> float:
    """How far the bars' names reach below them."""
    longest = min(LIMIT, NARROW * max(map(len, bars)))
    return LINE + longest * math.sin(math.radians(SLOPE)) * _slanted(bars, width)


def _axis(table: pl.DataFrame, bars: list[str], width: float) -> alt.Axis:
    """The bars' names below them, in their own colours where they have one. width: of a bar."""
    given = table.select("bar", "bar_colour").unique(maintain_order=True)
    shades = [
        {"test": f"datum.label == {json.dumps(drawable(bar))}", "value": shade}
        for bar, shade in given.filter(pl.col("bar_colour").str.contains(COLOUR)).iter_rows()
    ]
    return alt.Axis(
        labelAngle=-SLOPE if _slanted(bars, width) else 0,
        labelLimit=LIMIT,
        labelColor={"condition": shades, "value": "black"} if shades else alt.Undefined,
    )


def _parts(table: pl.DataFrame, x: list[Any], y: alt.Y, room: float, *, stacked: bool) -> alt.Chart:
    colours = selection.colours_of(table, "token_class", selection.PALETTE)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("group", "bar", "token_class")]
    tooltip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("mass", "expected")]
    colour = alt.Color(
        "token_class:N",
        sort=list(colours),
        scale=alt.Scale(domain=list(colours), range=list(colours.values())),
        legend=alt.Legend(
            title=None, orient="top", columns=strokes.columns(list(colours), room, SQUARE), labelLimit=int(room)
        ),
    )
    parts: alt.Chart = (
        alt.Chart()
        .mark_bar(stroke="white", strokeWidth=0.7)
        .encode(
            *x,
            y.stack("zero" if stacked else False),
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
