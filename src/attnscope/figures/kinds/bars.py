"""Stacked bars: where attention lands, by class of token. A group a layer, a bar a model or condition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from attnscope.analysis.effects import FALSE_DISCOVERIES, effects
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, masses
from attnscope.analysis.spread import INTERVAL, extent, mean_over_prompts
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, faceted, joined
from attnscope.figures.kind import Field, Kind, Look
from attnscope.figures.selection import PALETTE
from attnscope.study.schema import COLOUR, DepthsSpec, FigureSpec, layer_at

FIELDS = (
    Field("group", pl.String, "what bars stand together, such as 'Layer 16'; in order"),
    Field("bar", pl.String, "the bar's name, such as a model's"),
    Field("token_class", pl.String, "the part of the bar, from the bottom up"),
    Field("mass", pl.Float64, "its height"),
    Field("low", pl.Float64, "lower end of its interval", optional=True),
    Field("high", pl.Float64, "upper end of its interval", optional=True),
    Field("total_low", pl.Float64, "lower end of the whole bar's interval", optional=True),
    Field("total_high", pl.Float64, "upper end of the whole bar's interval", optional=True),
    Field("expected", pl.Float64, "what a uniform gaze would put there", optional=True),
    Field("against", pl.String, "the bar that this one is compared with", optional=True, gaps=True),
    Field("difference", pl.Float64, "the whole bar less that one, mean within prompts", optional=True, gaps=True),
    Field("difference_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Field("difference_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Field("q", pl.Float64, "its false discovery rate among all of the figure's", optional=True, gaps=True),
    Field("floor", pl.Float64, "what rounding alone could make of the difference", optional=True, gaps=True),
    Field("pairs", pl.Int64, "how many prompts both have", optional=True, gaps=True),
    Field("n", pl.Int64, "how many prompts", optional=True),
    Field("colour", pl.String, "of the part, such as '#b2182b'", optional=True),
    Field("bar_colour", pl.String, "of the bar's name", optional=True),
)
KEYS = ("group", "bar", "token_class")
SURE = "†"
GRAY = "#9a9a9a"
STEP, GAP = 34, 20  # a bar's width, and what is between groups


def table(run: Run, part: FigureSpec) -> pl.DataFrame:
    """Mass in each layer: mean over heads within a prompt, then over prompts."""
    names, shown = selection.classes(run, part), selection.conditions(run, part)
    labels = selection.models(run, part)
    parts, totals, noises = [], [], []
    for model in labels:
        layers = selection.layers(run, part, model)
        each = pl.concat([_over_heads(run, part, Side(run, model, name)) for name in shown])
        total = each.group_by("condition", "layer", "prompt", maintain_order=True).agg(pl.col("mass").sum())
        keys = ["condition", "layer"]
        found = mean_over_prompts(each, [*keys, "token_class"], "mass")
        expected = each.group_by([*keys, "token_class"]).agg(pl.col("expected").mean())
        whole = mean_over_prompts(total, keys, "mass").select(*keys, total_low="low", total_high="high")
        found = found.join(expected, on=[*keys, "token_class"]).join(whole, on=keys)
        groups = {layer: _group(run, part, labels, layer, run.depth(model)) for layer in layers}
        names_of = {
            "group": pl.col("layer").replace_strict(groups),
            "bar": _bar(run, model, many_models=len(labels) > 1, many_conditions=len(shown) > 1),
        }
        totals.append(total.select("prompt", "mass", **names_of))
        noise = _noise(run, part, model)
        noises.append(total.select(**names_of, noise=pl.col("layer").replace_strict(noise, default=None)).unique())
        parts.append(
            found.with_columns(
                **names_of,
                place=pl.col("layer").replace_strict({layer: place for place, layer in enumerate(layers)}),
                bar_colour=pl.lit(selection.model_colour(run, model), dtype=pl.String),
                model_place=pl.lit(labels.index(model)),
                condition_place=pl.col("condition").replace_strict({name: i for i, name in enumerate(shown)}),
                class_place=pl.col("token_class").replace_strict({name: i for i, name in enumerate(names)}),
                token_class=pl.col("token_class").replace_strict({n: selection.class_label(run, n) for n in names}),
            )
        )
    colours = selection.class_colours(run, names)
    made = (
        pl.concat(parts)
        .sort("place", "model_place", "condition_place", "class_place")
        .with_columns(colour=pl.col("token_class").replace_strict(colours))
    )
    against = _against_first(pl.concat(totals), made, run.study.seed)
    moved = pl.concat(noises)
    other = moved.rename({"bar": "against", "noise": "other"})
    against = (
        against.join(moved, on=["group", "bar"], how="left", maintain_order="left")
        .join(other, on=["group", "against"], how="left", maintain_order="left")
        .with_columns(floor=pl.col("noise") + pl.col("other"))
    )
    made = made.join(against, on=["group", "bar"], how="left", maintain_order="left")
    return made.select(field.name for field in FIELDS)


def _over_heads(run: Run, part: FigureSpec, side: Side) -> pl.DataFrame:
    """condition, layer, token_class, prompt, mass, expected: mean over the heads shown."""
    layers, names = selection.layers(run, part, side.model), selection.classes(run, part)
    held = masses(run, side.model, side.condition)
    group = run.study.measure.queries.index(selection.queries(run, part))
    heads = [run.heads(side.model).index(head) for head in selection.heads(run, part, side.model)]
    which = np.ix_(
        [run.layers(side.model).index(layer) for layer in layers], heads, [run.classes.index(name) for name in names]
    )
    mass, expected = (
        each[:, group].transpose(1, 2, 3, 0)[which].mean(1).transpose(2, 0, 1) for each in (held.mass, held.expected)
    )
    prompt, layer, name = np.indices(mass.shape).reshape(3, -1)
    return pl.DataFrame(
        {
            "condition": [side.condition] * mass.size,
            "layer": np.asarray(layers, dtype=np.int64)[layer],
            "token_class": pl.Series(names, dtype=pl.String).gather(name),
            "prompt": held.prompts[prompt],
            "mass": mass.ravel(),
            "expected": expected.ravel(),
        }
    )


def _noise(run: Run, part: FigureSpec, model: str) -> dict[int, float | None]:
    """By layer: how far rounding moves a bar at most, mean over its heads."""
    found = run.noise(model, selection.queries(run, part))
    layers, heads = run.layers(model), [run.heads(model).index(head) for head in selection.heads(run, part, model)]
    return {layer: None if found is None else float(found[place, heads].mean()) for place, layer in enumerate(layers)}


def _against_first(totals: pl.DataFrame, made: pl.DataFrame, seed: int) -> pl.DataFrame:
    """group, bar, against, difference, its ends and q, pairs: each bar but a group's first less that one, by prompt."""
    order = made.select("group", "bar").unique(maintain_order=True)
    first = order.unique("group", keep="first", maintain_order=True).rename({"bar": "against"})
    base = totals.join(first, left_on=["group", "bar"], right_on=["group", "against"])
    others = order.join(first, on="group", maintain_order="left").filter(pl.col("bar") != pl.col("against"))
    wide = (
        totals.join(base.select("group", "prompt", base="mass"), on=["group", "prompt"])
        .sort("prompt")
        .with_columns(difference=pl.col("mass") - pl.col("base"))
        .pivot(on="prompt", index=["group", "bar"], values="difference")
    )
    paired = others.join(wide, on=["group", "bar"], how="left", maintain_order="left")
    numbers = paired.drop("group", "bar", "against").cast(pl.Float64).to_numpy()
    found = effects(numbers.T if len(paired) else np.zeros((1, 0)), seed=seed)
    ends = pl.col("difference", "difference_low", "difference_high", "q")
    return others.with_columns(
        pairs=pl.Series(found.n),
        difference=pl.Series(found.mean),
        difference_low=pl.Series(found.low),
        difference_high=pl.Series(found.high),
        q=pl.Series(found.q),
    ).with_columns(ends.fill_nan(None))


def _group(run: Run, part: FigureSpec, models: Sequence[str], layer: int, depth: int) -> str:
    """Layers by number; by relative depth where the models have not the same number of layers."""
    if isinstance(part.layers, DepthsSpec) and len({run.depth(model) for model in models}) > 1:
        return next(f"Depth {each:.4g}" for each in part.layers.depths if layer_at(each, depth) == layer)
    return f"Layer {layer + part.number_from}"


def _bar(run: Run, model: str, *, many_models: bool, many_conditions: bool) -> pl.Expr:
    labels = {name: selection.condition_label(run, name) for name in run.conditions}
    condition = pl.col("condition").replace_strict(labels)
    if not many_conditions:
        return pl.lit(model)
    return pl.lit(f"{model}, ") + condition if many_models else condition


def look(run: Run, part: FigureSpec, made: pl.DataFrame) -> Look:
    gaze = selection.group_words(selection.queries(run, part))
    heads = selection.heads_words(run, part)
    least, most = extent(made["n"])
    interval = f"whisker: {INTERVAL}" if most > 1 else "one prompt, so no interval"
    return Look(
        title=part.title or "Where attention lands, by kind of token",
        y=part.y or "share of attention",
        caption=f"Gaze of {gaze}, mean over {heads} and n = {sentences.range_of(least, most, 'prompt')}; {interval}."
        + (" Layers and heads are numbered from 1." if part.number_from else ""),
        number_from=part.number_from,
    )


def draw(made: pl.DataFrame, seen: Look) -> Description:
    groups, bars, names = (list(dict.fromkeys(made[name])) for name in ("group", "bar", "token_class"))
    colours = list(selection.colours_of(made, "token_class", PALETTE).values())
    data = made.with_columns(
        order=pl.col("token_class").replace_strict({name: place for place, name in enumerate(names)}),
        top=pl.coalesce("total_high", pl.col("mass").sum().over("group", "bar")),
        label=_labels(made),
        sure=pl.Series([_is_sure(row) is not False for row in made.iter_rows(named=True)]),
    )
    given = made.select("bar", "bar_colour").unique(maintain_order=True)
    shades = [
        {"test": f"datum.label == {json.dumps(bar)}", "value": shade}
        for bar, shade in given.filter(pl.col("bar_colour").str.contains(COLOUR)).iter_rows()
    ]
    axis = alt.Axis(
        labelAngle=-35 if max(map(len, bars)) > 6 else 0,
        labelColor={"condition": shades, "value": "black"} if shades else alt.Undefined,
    )
    x = alt.X("bar:N", sort=bars, title=None, axis=axis)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("group", "bar", "token_class")]
    tooltip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("mass", "expected")]
    stacks = (
        alt.Chart()
        .mark_bar(stroke="white", strokeWidth=0.7)
        .encode(
            x=x,
            y=alt.Y("mass:Q", title=seen.y, stack="zero"),
            color=alt.Color(
                "token_class:N",
                sort=names,
                scale=alt.Scale(domain=names, range=colours),
                legend=alt.Legend(title=None, orient="top"),
            ),
            order=alt.Order("order:Q"),
            tooltip=tooltip,
        )
    )
    layers: list[alt.Chart] = [stacks]
    if made["total_low"].is_not_null().any():
        whiskers = alt.Chart().mark_rule(color="black").encode(x, alt.Y("total_low:Q"), alt.Y2("total_high:Q"))
        ends = alt.Chart().mark_tick(color="black", thickness=1, size=7)
        layers += [whiskers, ends.encode(x, alt.Y("total_low:Q")), ends.encode(x, alt.Y("total_high:Q"))]
    shade = alt.ColorValue(GRAY, condition={"test": "datum.sure", "value": "black"})
    above = alt.Chart().transform_filter("datum.order == 0").mark_text(fontSize=10, dy=-8)
    layers.append(above.encode(x, alt.Y("top:Q"), alt.Text("label:N"), shade))
    held = {group: made.filter(pl.col("group") == group)["bar"].n_unique() for group in groups}
    words = max(len(line) for group in groups for line in group.split(": "))  # a label's own lines, one above the other
    step = max(STEP, 7 * words // min(held.values()))
    header = alt.Header(labelFontWeight="bold", labelExpr="split(datum.label, ': ')")
    stacked = joined("layer", layers, data, width=alt.Step(step), height=260)
    apart: Any = alt.Undefined
    if min(held.values()) < len(bars):  # no gaps for bars that a group has not
        apart = alt.Resolve(scale=alt.ScaleResolveMap(x="independent"))
    across = sum(step * count + GAP for count in held.values())
    title = selection.title_of(seen, marks(made, seen), max(60, across // 6))
    by = alt.Column("group:N", sort=groups, title=None, header=header)
    return faceted(stacked, by, resolve=apart, title=title)


def marks(made: pl.DataFrame, seen: Look) -> str:
    told = ""
    if made["expected"].is_not_null().any():
        told += " x: the bar over what a uniform gaze would give it."
    if made["q"].is_not_null().any():
        against = sentences.listed(list(dict.fromkeys(made["against"].drop_nulls())))
        told += f" {SURE}: the whole bar is not that of {against}, within prompts (q < {FALSE_DISCOVERIES})."
        if any(_is_sure(row) is False for row in made.iter_rows(named=True)):
            told += " Gray: it may be, or the difference is within what rounding makes."
    return told


def read(made: pl.DataFrame, seen: Look) -> str:
    groups, bars, names = (list(dict.fromkeys(made[name])) for name in ("group", "bar", "token_class"))
    rows = {(row["group"], row["bar"], row["token_class"]): row for row in made.iter_rows(named=True)}
    places = [(group, bar) for group in groups for bar in bars if any((group, bar, name) in rows for name in names)]
    totals = {place: sum(rows[*place, name]["mass"] for name in names if (*place, name) in rows) for place in places}
    first = {place: next(rows[*place, name] for name in names if (*place, name) in rows) for place in places}
    ends = {place: (row["total_low"], row["total_high"]) for place, row in first.items()}
    by_bar = {bar: {group: totals[group, bar] for group in groups if (group, bar) in totals} for bar in bars}
    by_name = {f"{group}, {bar}": totals[group, bar] for group, bar in places}
    parts_of = {
        place: {name: rows[*place, name]["mass"] for name in names if (*place, name) in rows} for place in places
    }
    highest = max(totals.values())
    numbers = []
    for place in places:
        told = []
        for name in names:
            row = rows.get((*place, name))
            if row is not None:
                told.append(f"{name} {sentences.with_interval(row['mass'], row['low'], row['high'])}{_times([row])}")
        held = [rows[*place, name] for name in names if (*place, name) in rows]
        numbers.append(
            f"**{place[0]}, {place[1]}**: {'; '.join(told)}; together "
            f"{sentences.with_interval(totals[place], *ends[place])}{_times(held)}."
        )
    pairs = [
        (_paired(first[group, two]) if first[group, two]["against"] == one else None)
        or sentences.comparison(
            group, (one, totals[group, one], *ends[group, one]), (two, totals[group, two], *ends[group, two])
        )
        if first[group, two]["against"] == one or (group, first[group, two]["against"]) not in totals
        else None
        for group in groups
        for one, two in combinations(bars, 2)
        if (group, one) in totals and (group, two) in totals
    ]
    everywhere = [
        sentences.consistent(one, two, groups, [totals[group, one] > totals[group, two] for group in groups])
        for one, two in pairwise(bars)
        if all((group, bar) in totals for group in groups for bar in (one, two))
    ]
    return sentences.document(
        seen.title,
        {
            "Overview": [
                f"Stacked bars in {len(groups)} group{'s' * (len(groups) > 1)} ({sentences.listed(groups)}) of "
                f"{len(bars)} bar{'s' * (len(bars) > 1)} ({sentences.listed(bars)}).",
                f"From the bottom up: {sentences.listed(names)}.",
                seen.caption or None,
            ],
            "Axes": [
                f"Vertical: {seen.y or 'mass'}; the largest total of a bar is {sentences.number(highest)}.",
                "Horizontal: one bar each, named below it; the group is named above.",
                "x: so many times what a gaze at all visible tokens alike would give."
                if made["expected"].is_not_null().any()
                else None,
            ],
            "Numbers": numbers,
            "Observations": [
                sentences.extreme(by_name, "bar", most=True),
                sentences.extreme(by_name, "bar", most=False),
                *everywhere,
                *pairs,
                *(sentences.trend(values, f"The bar of {bar}") for bar, values in by_bar.items()),
                *(sentences.lead(f"{group}, {bar}", parts_of[group, bar]) for group, bar in places),
            ],
        },
    )


def _paired(row: dict[str, Any]) -> str | None:
    """How far a bar is from the one it is compared with, within prompts."""
    difference, against = row["difference"], row["against"]
    if difference is None or against is None:
        return None
    ends = row["difference_low"], row["difference_high"]
    among = "prompts" if row["pairs"] is None else sentences.counted(row["pairs"], "prompt")
    told = f"{row['group']}: {row['bar']} less {against}, within {among}, is "
    told += sentences.with_interval(difference, *ends)
    if row["q"] is None:
        return f"{told}; too few prompts to tell more."
    told += f"; {sentences.rate(row['q'])}"
    if row["q"] >= FALSE_DISCOVERIES:
        return f"{told}, so it may be chance."
    return f"{told}." if _is_sure(row) else f"{told}, but within what rounding makes ({row['floor']:.1e})."


def _is_sure(row: dict[str, Any]) -> bool | None:
    """Whether a bar differs from the one it is compared with; None if it is compared with none, or that is unknown."""
    if row["q"] is None:
        return None
    return bool(row["q"] < FALSE_DISCOVERIES and abs(row["difference"]) > (row["floor"] or 0))


def _times(rows: Sequence[dict[str, Any]]) -> str:
    """Such as ', x0.85': over what a uniform gaze would give."""
    found = _enrichment(rows)
    return "" if found is None else f", x{found:.2f}"


def _enrichment(rows: Sequence[dict[str, Any]]) -> float | None:
    expected = [row["expected"] for row in rows]
    if any(each is None for each in expected) or sum(expected) <= 0:
        return None
    return float(sum(row["mass"] for row in rows) / sum(expected))


def _labels(made: pl.DataFrame) -> pl.Series:
    """Above each bar, told once for each of its parts: its enrichment, and the mark of a difference."""
    bars: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in made.iter_rows(named=True):
        bars.setdefault((row["group"], row["bar"]), []).append(row)
    words = {
        place: (_times(rows).removeprefix(", ") + (SURE if _is_sure(rows[0]) else "")) for place, rows in bars.items()
    }
    return pl.Series([words[row["group"], row["bar"]] for row in made.iter_rows(named=True)], dtype=pl.String)


KIND = Kind(
    "bars", "where attention lands, by class of token", FIELDS, table, look, draw, read, KEYS, marks, apart="group"
)
