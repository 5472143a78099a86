"""A map of all heads: layers across, heads down, coloured by a measure or its change between conditions or models."""

from __future__ import annotations

import textwrap

import altair as alt
import polars as pl

from attnscope.analysis.effects import FALSE_DISCOVERIES, effects
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
    Field("low", pl.Float64, "of a change: lower end of its interval", optional=True, gaps=True),
    Field("high", pl.Float64, "of a change: upper end of its interval", optional=True, gaps=True),
    Field("q", pl.Float64, "of a change: its false discovery rate among the panel's heads", optional=True, gaps=True),
    Field("n", pl.Int64, "how many prompts", optional=True),
)
WIDEST = 60  # layers side by side
DARK = 0.6  # of the scale: black on it is not seen
GRAY = "#bdbdbd"
MARKED = 0.1  # of the scale: cells so far below zero are marked, for in gray both ends are dark


def table(run: Run, part: FigurePart) -> pl.DataFrame:
    first = part.number_from
    labels, names = selection.models(run, part), selection.conditions(run, part)
    if part.difference is None:
        parts = [
            _means(_by_prompt(run, part, model, name), selection.title(run, part, model, name))
            for model in labels
            for name in names
        ]
    elif part.difference[0] in run.conditions:
        one, two = part.difference
        title = f"{selection.condition_label(run, two)} less {selection.condition_label(run, one)}"
        parts = [
            _changes(
                _less(_by_prompt(run, part, model, two), _by_prompt(run, part, model, one)),
                f"{model}: {title}" if len(labels) > 1 else title,
                run.study.seed,
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
            _changes(
                _less(_by_prompt(run, part, two, name), _by_prompt(run, part, one, name)),
                f"{two} less {one}" + (f", {selection.condition_label(run, name)}" if len(names) > 1 else ""),
                run.study.seed,
            )
            for name in names
        ]
    made = pl.concat(parts).with_columns(pl.col("layer") + first, pl.col("head") + first)
    return made.select(field.name for field in FIELDS)


def _by_prompt(run: Run, part: FigurePart, model: str, condition: str) -> pl.DataFrame:
    """prompt, layer, head, value."""
    wanted = _measures(run, part)
    here = (
        (pl.col("model") == model)
        & (pl.col("condition") == condition)
        & (pl.col("queries") == selection.queries(run, part))
        & pl.col("layer").is_in(selection.layers(run, part, model))
        & pl.col("head").is_in(selection.heads(run, part, model))
    )
    if set(wanted) <= set(run.classes):
        found = (
            run.table("mass")
            .filter(here, pl.col("token_class").is_in(wanted))
            .group_by("prompt", "layer", "head", maintain_order=True)
            .agg(value=pl.col("mass").sum())
        )
    elif wanted == [ENTROPY] and run.study.measure.entropy:
        found = run.table("received").filter(here).rename({"entropy": "value"})
    elif wanted == [SINK]:
        found = run.table("received").filter(here).with_columns(value=pl.col("received").list.first())
    else:
        known = [*run.classes, SINK, *([ENTROPY] if run.study.measure.entropy else [])]
        missing = next((each for each in wanted if each not in known), " and ".join(wanted))
        raise AttnscopeError(
            f"there is no measure '{missing}' in this run",
            where=f"figure {part.name}: measure",
            allowed=near(missing, known),
            todo="use one of these",
        )
    return found.select("prompt", "layer", "head", pl.col("value").cast(pl.Float64)).collect()


def _measures(run: Run, part: FigurePart) -> list[str]:
    return part.measures or selection.classes(run, part)[:1]


def _less(two: pl.DataFrame, one: pl.DataFrame) -> pl.DataFrame:
    """Within prompts: those that only one of them has are left out."""
    both = two.join(one, on=["prompt", "layer", "head"], suffix="_one", maintain_order="left")
    return both.with_columns(value=pl.col("value") - pl.col("value_one"))


def _means(by_prompt: pl.DataFrame, panel: str) -> pl.DataFrame:
    if not len(by_prompt):
        raise AttnscopeError(
            "there is no prompt to show", where=panel, allowed="prompts that both have", todo="choose others"
        )
    nothing = pl.lit(None, dtype=pl.Float64)
    return (
        by_prompt.group_by("layer", "head")
        .agg(pl.col("value").mean(), pl.len().cast(pl.Int64).alias("n"))
        .sort("layer", "head")
        .with_columns(pl.col("layer", "head").cast(pl.Int64), panel=pl.lit(panel), low=nothing, high=nothing, q=nothing)
        .select(field.name for field in FIELDS)
    )


def _changes(by_prompt: pl.DataFrame, panel: str, seed: int) -> pl.DataFrame:
    """The same of differences within prompts, with how sure each is."""
    made = _means(by_prompt, panel)
    ordered = by_prompt.with_columns(pl.col("layer", "head").cast(pl.Int64)).sort("prompt")
    wide = ordered.pivot(on="prompt", index=["layer", "head"], values="value")
    placed = made.select("layer", "head").join(wide, on=["layer", "head"], maintain_order="left")
    found = effects(placed.drop("layer", "head").to_numpy().T, seed=seed)
    numbers = {"low": found.low, "high": found.high, "q": found.q}
    return made.with_columns(pl.Series(name, values).fill_nan(None) for name, values in numbers.items())


def look(run: Run, part: FigurePart, made: pl.DataFrame) -> Look:
    wanted = _measures(run, part)
    names = sentences.listed([selection.class_label(run, each) for each in wanted])
    words = {ENTROPY: "entropy (nats)", SINK: "attention on the first token"}.get(wanted[0], f"attention on {names}")
    gaze = selection.group_words(selection.queries(run, part))
    kind = "Change of the" if part.difference else "The"
    return Look(
        title=part.title or f"All heads: {words}",
        y=part.y or words,
        caption=f"{kind} gaze of {gaze}, mean over n = {sentences.range_of(*extent(made['n']), 'prompt')}, "
        + ("paired by prompt" if part.difference else "each head by itself")
        + (
            "; too few prompts to tell which changes may be chance."
            if part.difference and made["q"].is_null().any()
            else "."
        )
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
        told = ["layer", "head", alt.Tooltip("value", format=".4f"), alt.Tooltip("q", format=".2g"), "n"]
        cells = base.mark_rect().encode(
            color=alt.Color("value:Q", scale=scale, title=textwrap.wrap(seen.y, 18)), tooltip=told
        )
        chance = base.transform_filter(f"datum.q !== null && datum.q >= {FALSE_DISCOVERIES}")
        unsure = chance.mark_rect(color=GRAY).encode(tooltip=told)
        below = (
            base.transform_filter(
                f"datum.value < {-MARKED * reach} && !(datum.q !== null && datum.q >= {FALSE_DISCOVERIES})"
            )
            .mark_text(fontSize=9, text="–")
            .encode(color=alt.condition(f"datum.value < {-DARK * reach}", alt.value("white"), alt.value("black")))
        )
        shown = alt.layer(cells, unsure, below) if signed else alt.layer(cells, unsure)
        charts.append(shown.properties(width=alt.Step(15), height=alt.Step(15), title=title))
    caption = f"{seen.caption} A dash: below zero by over a tenth of the scale." if signed else seen.caption
    if made["q"].is_not_null().any():
        caption += f" Gray: may be chance (q >= {FALSE_DISCOVERIES})."
    title = alt.Title(seen.title, subtitle=textwrap.wrap(caption, 80), anchor="start")
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
        if part["q"].is_not_null().any():
            sure = part.filter(pl.col("q") < FALSE_DISCOVERIES)
            up, down = int((sure["value"] > 0).sum()), int((sure["value"] < 0).sum())
            observed.append(
                f"{title}: {len(sure)} of {len(part)} heads change by more than chance would make "
                f"(q < {FALSE_DISCOVERIES}), {up} of them up and {down} down."
            )
        elif (part["value"] < 0).any():
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
