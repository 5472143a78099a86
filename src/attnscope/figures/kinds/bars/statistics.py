"""Run -> the mass of each class in each layer, and how each bar differs from its reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from attnscope.analysis.by_layer import Layers, layer_changes
from attnscope.analysis.families import IN_LAYERS
from attnscope.analysis.means import mean_over_prompts
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, masses
from attnscope.analysis.spread import cut_to_shares, mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Column
from attnscope.figures.kinds.bars.options import BarsOptions
from attnscope.study.schema import DepthsSpec, layer_at

COLUMNS = (
    Column("group", pl.String, "which bars are grouped, such as 'Layer 16'; in order"),
    Column("bar", pl.String, "the bar's name, such as a model's"),
    Column("token_class", pl.String, "the part of the bar, from the bottom up"),
    Column("mass", pl.Float64, "its height"),
    Column("low", pl.Float64, "lower end of its interval, cut at 0", optional=True),
    Column("high", pl.Float64, "upper end of its interval, cut at 1", optional=True),
    Column(
        "total_low",
        pl.Float64,
        "lower end of the whole bar's interval, cut at 0; none if its parts don't add up",
        optional=True,
    ),
    Column("total_high", pl.Float64, "upper end of the whole bar's interval, cut at 1", optional=True),
    Column(
        "adds_up",
        pl.Boolean,
        "whether the bar's classes are means over the same prompts; otherwise its parts are drawn side by side",
        optional=True,
        gaps=True,
    ),
    Column("expected", pl.Float64, "its height under uniform attention", optional=True),
    Column(
        "against", pl.String, "the bar that this one is compared with; empty if with none", optional=True, gaps=True
    ),
    Column("difference", pl.Float64, "the whole bar minus that one, mean within prompts", optional=True, gaps=True),
    Column("difference_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("difference_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Column("q", pl.Float64, f"its false discovery rate {IN_LAYERS}", optional=True, gaps=True),
    Column("floor", pl.Float64, "the difference that rounding alone could cause", optional=True, gaps=True),
    Column("pairs", pl.Int64, "how many prompts both have", optional=True, gaps=True),
    Column("n", pl.Int64, "how many prompts have the class", optional=True),
    Column("colour", pl.String, "of the part, such as '#b2182b'", optional=True),
    Column("bar_colour", pl.String, "of the bar's name", optional=True),
)
KEYS = ("group", "bar", "token_class")


def table(run: Run, options: BarsOptions) -> pl.DataFrame:
    """Mass in each layer: mean over heads within a prompt, then over prompts."""
    names = selection.classes(run, options)
    parts = [_of_model(run, options, model) for model in options.models_of(run)]
    places = [f"{column}_place" for column in ("layer", "model", "condition", "class")]
    if not any(len(part.bars) for part in parts):
        raise AttnscopeError(
            f"no prompt can show {sentences.listed(names)}",
            where=f"figure {options.name}: classes",
            allowed="classes that some token belongs to",
            todo="choose others",
        )
    bars = (
        pl.concat([part.bars for part in parts])
        .sort(places)
        .with_columns(colour=pl.col("token_class").replace_strict(selection.class_colours(run, names)))
    )
    noise = pl.concat([part.noise for part in parts])
    against = _differences(bars, set(noise.select("group", "bar").iter_rows()), run, options)
    other = noise.rename({"bar": "against", "noise": "other"})
    against = (
        against.join(noise, on=["group", "bar"], how="left", maintain_order="left")
        .join(other, on=["group", "against"], how="left", maintain_order="left")
        .with_columns(floor=pl.col("noise") + pl.col("other"))
    )
    bars = bars.join(against, on=["group", "bar"], how="left", maintain_order="left")
    return bars.select(column.name for column in COLUMNS)


@dataclass(frozen=True)
class _OfModel:
    """The bars of one model, and how far rounding moves each that adds up."""

    bars: pl.DataFrame
    noise: pl.DataFrame


def _of_model(run: Run, options: BarsOptions, model: str) -> _OfModel:
    labels, shown, names = options.models_of(run), options.conditions_of(run), selection.classes(run, options)
    layers = selection.layers(run, options, model)
    by_prompt = pl.concat([_over_heads(run, options, Side(run, model, name)) for name in shown])
    by_prompt = by_prompt.filter(pl.col("mass").is_not_nan())  # prompts that lack a class don't count in its mean
    total = by_prompt.group_by("condition", "layer", "prompt", maintain_order=True).agg(pl.col("mass").sum())
    keys = ["condition", "layer"]
    means = cut_to_shares(mean_over_prompts(by_prompt, [*keys, "token_class"], "mass", run.cluster_of), "low", "high")
    expected = by_prompt.group_by([*keys, "token_class"]).agg(pl.col("expected").mean())
    whole = cut_to_shares(mean_over_prompts(total, keys, "mass", run.cluster_of), "low", "high")
    whole = whole.select(*keys, total_low="low", total_high="high", prompts="n")
    adds_up = (  # if some prompt lacks a class, a bar is no mean over prompts
        means.join(whole, on=keys).group_by(keys).agg(adds_up=(pl.col("n") == pl.col("prompts")).all())
    )
    whole = whole.join(adds_up, on=keys).with_columns(pl.when("adds_up").then(pl.col("total_low", "total_high")))
    total = total.join(adds_up, on=keys, maintain_order="left").filter("adds_up")
    groups = {layer: _group(run, options, labels, layer, run.depth(model)) for layer in layers}
    titles = {
        "group": pl.col("layer").replace_strict(groups),
        "bar": _bar(run, model, many_models=len(labels) > 1, many_conditions=len(shown) > 1),
    }
    bars = (
        means.join(expected, on=[*keys, "token_class"])
        .join(whole, on=keys)
        .with_columns(
            **titles,
            model=pl.lit(model),
            bar_colour=pl.lit(selection.model_colour(run, model), dtype=pl.String),
            layer_place=_place("layer", layers),
            model_place=pl.lit(labels.index(model)),
            condition_place=_place("condition", shown),
            class_place=_place("token_class", names),
            token_class=pl.col("token_class").replace_strict({n: selection.class_label(run, n) for n in names}),
        )
    )
    noise = pl.col("layer").replace_strict(_noise(run, options, model), default=None)
    return _OfModel(bars, total.select(**titles, noise=noise).unique())


def _place(column: str, order: Sequence[Any]) -> pl.Expr:
    """Where a column's value stands in an order."""
    return pl.col(column).replace_strict({value: place for place, value in enumerate(order)})


def _over_heads(run: Run, options: BarsOptions, side: Side) -> pl.DataFrame:
    """condition, layer, token_class, prompt, mass, expected: mean over the heads shown."""
    layers, names = selection.layers(run, options, side.model), selection.classes(run, options)
    by_class = masses(run, side.model, side.condition, selection.queries(run, options))
    heads = [run.heads(side.model).index(head) for head in selection.heads(run, options, side.model)]
    places = [run.layers(side.model).index(layer) for layer in layers]
    mass, expected = (  # (prompts, layers, classes)
        mean_of_seen(each[:, places][:, :, heads][..., [by_class.names.index(name) for name in names]], 2)
        for each in (by_class.mass, by_class.expected)
    )
    prompt, layer, name = np.indices(mass.shape).reshape(3, -1)
    return pl.DataFrame(
        {
            "condition": [side.condition] * mass.size,
            "layer": np.asarray(layers, dtype=np.int64)[layer],
            "token_class": pl.Series(names, dtype=pl.String).gather(name),
            "prompt": by_class.prompts[prompt],
            "mass": mass.ravel(),
            "expected": expected.ravel(),
        }
    )


def _noise(run: Run, options: BarsOptions, model: str) -> dict[int, float | None]:
    """By layer: how far rounding moves a bar at most, mean over its heads."""
    noise = run.noise(model, selection.queries(run, options))
    layers, heads = run.layers(model), [run.heads(model).index(head) for head in selection.heads(run, options, model)]
    return {layer: None if noise is None else float(noise[place, heads].mean()) for place, layer in enumerate(layers)}


def _compared(bars: pl.DataFrame) -> pl.DataFrame:
    """group, bar, against: pairs that differ in one thing only, so that a difference can be attributed to it.

    A condition is compared with the first condition of the same model, and a model's first condition with that of the
    first model. bars: sorted by model, then by condition.
    """
    order = bars.select("group", "bar", "model_place").unique(maintain_order=True)
    of_model, of_group = pl.col("bar").first().over("group", "model_place"), pl.col("bar").first().over("group")
    against = pl.when(pl.col("bar") != of_model).then(of_model).otherwise(of_group)
    return order.select("group", "bar", against=against).filter(pl.col("bar") != pl.col("against"))


def _differences(bars: pl.DataFrame, whole: set[tuple[str, str]], run: Run, options: BarsOptions) -> pl.DataFrame:
    """Each bar minus the one it is compared with, with its interval and q. whole: the bars that add up."""
    others = _compared(bars)
    queries, names = selection.queries(run, options), tuple(selection.classes(run, options))
    rows = bars.select("group", "bar", "model", "condition", "layer").unique().iter_rows()
    places = {(group, bar): (Side(run, model, condition), layer) for group, bar, model, condition, layer in rows}
    shown: dict[tuple[Side, Side], list[Layers]] = {}
    for group, bar, against in others.iter_rows():
        (one, first), (two, second) = places[group, against], places[group, bar]
        shown.setdefault((one, two), []).append((first, second))
    found = {}
    for (one, two), layers in shown.items():
        first_heads, second_heads = (tuple(selection.heads(run, options, side.model)) for side in (one, two))
        found[one, two] = layer_changes(one, two, queries, names, (first_heads, second_heads), tuple(layers))
    changes = []
    for group, bar, against in others.iter_rows():
        (one, first), (two, second) = places[group, against], places[group, bar]
        adds_up = {(group, bar), (group, against)} <= whole
        changes.append(found[one, two][first, second] if adds_up else None)
    columns = {"pairs": "n", "difference": "mean", "difference_low": "low", "difference_high": "high", "q": "q"}
    types = {"pairs": pl.Int64}
    return others.with_columns(
        pl.Series(
            name,
            [None if each is None else getattr(each, field) for each in changes],
            dtype=types.get(name, pl.Float64),
        )
        for name, field in columns.items()
    )


def _group(run: Run, options: BarsOptions, models: Sequence[str], layer: int, depth: int) -> str:
    """Layers by number; by relative depth where the models differ in their number of layers."""
    if isinstance(options.layers, DepthsSpec) and len({run.depth(model) for model in models}) > 1:
        return next(f"Depth {each:.4g}" for each in options.layers.depths if layer_at(each, depth) == layer)
    return f"Layer {layer + options.number_from}"


def _bar(run: Run, model: str, *, many_models: bool, many_conditions: bool) -> pl.Expr:
    labels = {name: selection.condition_label(run, name) for name in run.conditions}
    condition = pl.col("condition").replace_strict(labels)
    if not many_conditions:
        return pl.lit(model)
    return pl.lit(f"{model} / ") + condition if many_models else condition
