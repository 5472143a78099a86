"""A map of all heads: layers across, heads down, coloured by a measure or its change between conditions or models."""

from __future__ import annotations

import textwrap

import altair as alt
import polars as pl

from attnscope.analysis.run import Run
from attnscope.analysis.spread import extent
from attnscope.errors import AttnscopeError, near
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Field, Kind, Look
from attnscope.study.consistency import ENTROPY, SINK
from attnscope.study.parts import FigurePart

FIELDS = (
    Field("panel", pl.String, "the panel's title; in order"),
    Field("layer", pl.Int64, "across"),
    Field("head", pl.Int64, "down"),
    Field("value", pl.Float64, "the cell's colour"),
    Field("n", pl.Int64, "how many prompts", optional=True),
)
WIDEST = 60  # layers side by side
DARK = 0.6  # of the scale: black on it is not seen
MARKED = 0.1  # of the scale: cells so far below zero are marked, for in gray both ends are dark


def table(run: Run, part: FigurePart) -> pl.DataFrame:
    first = part.number_from
    labels, names = selection.models(run, part), selection.conditions(run, part)
    if part.difference is None:
        parts = [
            _means(_by_prompt(run, part, model, name), _title(run, model, name, len(labels), len(names)))
            for model in labels
            for name in names
        ]
    elif part.difference[0] in run.conditions:
        one, two = part.difference
        title = f"{selection.condition_label(run, two)} less {selection.condition_label(run, one)}"
        parts = [
            _means(
                _less(_by_prompt(run, part, model, two), _by_prompt(run, part, model, one)),
                f"{model}: {title}" if len(labels) > 1 else title,
            )
            for model in labels
        ]
    else:
        one, two = part.difference
        if (run.layers(one), run.heads(one)) != (run.layers(two), run.heads(two)):
            raise AttnscopeError(
                f"the heads of {one} and {two} can't be paired by number",
                where=f"figure {part.name}: difference",
                allowed="models with the same layers and heads",
                todo="show them side by side instead",
            )
        parts = [
            _means(
                _less(_by_prompt(run, part, two, name), _by_prompt(run, part, one, name)),
                f"{two} less {one}" + (f", {selection.condition_label(run, name)}" if len(names) > 1 else ""),
            )
            for name in names
        ]
    made = pl.concat(parts).with_columns(pl.col("layer") + first, pl.col("head") + first)
    return made.select(field.name for field in FIELDS)


def _by_prompt(run: Run, part: FigurePart, model: str, condition: str) -> pl.DataFrame:
    """prompt, layer, head, value."""
    measure = part.measure or selection.classes(run, part)[0]
    here = (
        (pl.col("model") == model)
        & (pl.col("condition") == condition)
        & (pl.col("queries") == selection.queries(run, part))
        & pl.col("layer").is_in(selection.layers(run, part, model))
        & pl.col("head").is_in(selection.heads(run, part, model))
    )
    if measure in run.classes:
        found = run.table("mass").filter(here, pl.col("token_class") == measure).rename({"mass": "value"})
    elif measure == ENTROPY and run.study.measure.entropy:
        found = run.table("received").filter(here).rename({"entropy": "value"})
    elif measure == SINK:
        found = run.table("received").filter(here).with_columns(value=pl.col("received").list.first())
    else:
        known = [*run.classes, SINK, *([ENTROPY] if run.study.measure.entropy else [])]
        raise AttnscopeError(
            f"there is no measure '{measure}' in this run",
            where=f"figure {part.name}: measure",
            allowed=near(measure, known),
            todo="use one of these",
        )
    return found.select("prompt", "layer", "head", pl.col("value").cast(pl.Float64)).collect()


def _less(two: pl.DataFrame, one: pl.DataFrame) -> pl.DataFrame:
    """Within prompts: those that only one of them has are left out."""
    both = two.join(one, on=["prompt", "layer", "head"], suffix="_one", maintain_order="left")
    return both.with_columns(value=pl.col("value") - pl.col("value_one"))


def _means(by_prompt: pl.DataFrame, panel: str) -> pl.DataFrame:
    if not len(by_prompt):
        raise AttnscopeError(
            "there is no prompt to show", where=panel, allowed="prompts that both have", todo="choose others"
        )
    return (
        by_prompt.group_by("layer", "head")
        .agg(pl.col("value").mean(), pl.len().cast(pl.Int64).alias("n"))
        .sort("layer", "head")
        .select(pl.lit(panel).alias("panel"), pl.col("layer", "head").cast(pl.Int64), "value", "n")
    )


def _title(run: Run, model: str, condition: str, models: int, conditions: int) -> str:
    if conditions == 1:
        return model
    label = selection.condition_label(run, condition)
    return label if models == 1 else f"{model}, {label}"


def look(run: Run, part: FigurePart, made: pl.DataFrame) -> Look:
    measure = part.measure or selection.classes(run, part)[0]
    words = {ENTROPY: "entropy (nats)", SINK: "attention on the first token"}.get(
        measure, f"attention on {selection.class_label(run, measure) if measure in run.classes else measure}"
    )
    gaze = selection.group_words(selection.queries(run, part))
    kind = "Change of the" if part.difference else "The"
    return Look(
        title=part.title or f"All heads: {words}",
        y=part.y or words,
        caption=f"{kind} gaze of {gaze}, mean over n = {sentences.range_of(*extent(made['n']), 'prompt')}, "
        + ("paired by prompt." if part.difference else "each head by itself.")
        + (" Layers and heads are numbered from 1." if part.number_from else ""),
        number_from=part.number_from,
    )


def draw(made: pl.DataFrame, seen: Look) -> alt.TopLevelMixin:
    signed = bool((made["value"] < 0).any())
    reach = float(made["value"].abs().max() or 0) or 1.0  # type: ignore[arg-type]
    scale = (
        alt.Scale(scheme="purpleorange", domain=[-reach, reach]) if signed else alt.Scale(scheme="viridis", domainMin=0)
    )
    charts = []
    for title in dict.fromkeys(made["panel"]):
        base = alt.Chart(made.filter(pl.col("panel") == title)).encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
            y=alt.Y("head:O", title="head"),
        )
        cells = base.mark_rect().encode(
            color=alt.Color("value:Q", scale=scale, title=textwrap.wrap(seen.y, 18)),
            tooltip=["layer", "head", alt.Tooltip("value", format=".4f"), "n"],
        )
        below = (
            base.transform_filter(f"datum.value < {-MARKED * reach}")
            .mark_text(fontSize=9, text="–")
            .encode(color=alt.condition(f"datum.value < {-DARK * reach}", alt.value("white"), alt.value("black")))
        )
        shown = alt.layer(cells, below) if signed else cells
        charts.append(shown.properties(width=alt.Step(15), height=alt.Step(15), title=title))
    told = f"{seen.caption} A dash: below zero by over a tenth of the scale." if signed else seen.caption
    title = alt.Title(seen.title, subtitle=textwrap.wrap(told, 80), anchor="start")
    beside = max(1, WIDEST // max(1, made["layer"].n_unique()))
    return alt.concat(*charts, columns=beside).properties(title=title)


def read(made: pl.DataFrame, seen: Look) -> str:
    numbers, observed = [], []
    for title in dict.fromkeys(made["panel"]):
        part = made.filter(pl.col("panel") == title)
        top = part.sort("value", descending=True, maintain_order=True).head(5)
        told = [
            f"layer {r['layer']} head {r['head']} {sentences.number(r['value'])}" for r in top.iter_rows(named=True)
        ]
        numbers.append(f"**{title}**: highest {sentences.listed(told)}.")
        low = part.sort("value", maintain_order=True).head(3)
        told = [
            f"layer {r['layer']} head {r['head']} {sentences.number(r['value'])}" for r in low.iter_rows(named=True)
        ]
        numbers.append(f"**{title}**: lowest {sentences.listed(told)}.")
        mean = sentences.number(float(part["value"].mean()))  # type: ignore[arg-type]
        observed.append(f"{title}: the mean over {len(part)} heads is {mean}.")
        above = int((part["value"] > 0).sum())
        if (part["value"] < 0).any():
            observed.append(f"{title}: {above} of {len(part)} heads are above zero.")
        by_layer = part.group_by("layer", maintain_order=True).agg(pl.col("value").mean())
        values = {f"layer {row['layer']}": row["value"] for row in by_layer.iter_rows(named=True)}
        for most in (True, False):
            told_of = sentences.extreme(values, "mean of a layer", most=most)
            observed.append(f"{title}: {told_of[0].lower()}{told_of[1:]}" if told_of else "")
    return sentences.document(
        seen.title,
        {
            "Overview": [
                f"A map of layers across and heads down, coloured by {seen.y or 'value'}.",
                seen.caption or None,
            ],
            "Axes": [
                f"Across: {_numbers('layer', made)}. Down: {_numbers('head', made)}.",
                "All panels have one scale." if made["panel"].n_unique() > 1 else None,
            ],
            "Numbers": numbers,
            "Observations": observed,
        },
    )


def _numbers(what: str, made: pl.DataFrame) -> str:
    found = sorted(set(made[what]))
    if len(found) == found[-1] - found[0] + 1:
        return f"{what} {found[0]} to {found[-1]}"
    return f"{what}s {sentences.listed([str(each) for each in found])}"


KIND = Kind("heatmap", "a map of all heads", FIELDS, table, look, draw, read, ("panel", "layer", "head"))
