"""A map of all heads: layers across, heads down, coloured by a measure or its change between conditions or models."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.comparisons import Comparison, family
from attnscope.analysis.comparisons import Kind as Kinds
from attnscope.analysis.effects import FALSE_DISCOVERIES, FEWEST, Effects, effects
from attnscope.analysis.matching import BY_NUMBER, Matching, matched
from attnscope.analysis.measures import Measured, measured
from attnscope.analysis.run import Run
from attnscope.analysis.sides import ENRICHMENT, EVERY, MASS, Side, quantities
from attnscope.analysis.spread import extent, mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Field, Kind, Look
from attnscope.measures.names import OF_INSERTIONS, title_of
from attnscope.study.schema import FigureSpec

FIELDS = (
    Field("panel", pl.String, "the panel's title; in order"),
    Field("layer", pl.Int64, "across"),
    Field("head", pl.Int64, "down"),
    Field("value", pl.Float64, "the cell's colour"),
    Field("low", pl.Float64, "of a change: lower end of its interval", optional=True, gaps=True),
    Field("high", pl.Float64, "of a change: upper end of its interval", optional=True, gaps=True),
    Field(
        "q",
        pl.Float64,
        "of a change: its false discovery rate among the panel's heads, of a class among those of all classes",
        optional=True,
        gaps=True,
    ),
    Field("floor", pl.Float64, "of a change: what rounding alone could make", optional=True, gaps=True),
    Field("n", pl.Int64, "how many prompts", optional=True),
    Field("row", pl.Int64, "the cell's place down, if not by its head: 1 is the layer's strongest", optional=True),
)
WIDEST = 60  # layers side by side
STEP = 15  # a cell's side
NARROW, LEGEND = 560, 150  # pixels: of a screen with no room beside the map; what is beside it otherwise
LARGEST, MARGIN = 30, 55  # a cell's side on a screen; what a panel needs besides its cells
DARK = 0.6  # of the scale: black on it is not seen
GRAY = "#bdbdbd"
INK, PAPER = "#000000", "#ffffff"  # on a cell, whatever the page's own colours are
UNSURE = f"(datum.q !== null && (datum.q >= {FALSE_DISCOVERIES} || abs(datum.value) <= datum.floor))"
UNDER = " or within what rounding makes"
MARKED = 0.1  # of the scale: cells so far below zero are marked, for in gray both ends are dark


def table(run: Run, part: FigureSpec) -> pl.DataFrame:
    made = pl.concat([_panel(run, part, *each) for each in _panels(run, part)])
    if not len(made):
        raise AttnscopeError(
            f"no prompt can show {sentences.listed(_measures(run, part))}",
            where=f"figure {part.name}: measure",
            allowed="measures that some prompt has, and classes that some token belongs to",
            todo="choose another",
        )
    first = part.number_from
    made = made.with_columns(pl.col("layer") + first, pl.col("head") + first, row=pl.lit(None, dtype=pl.Int64))
    if part.sort == "effect":
        strongest = pl.col("value").abs().rank("ordinal", descending=True).over("panel", "layer")
        made = made.with_columns(row=strongest.cast(pl.Int64))
    return made.select(field.name for field in FIELDS)


def _panels(run: Run, part: FigureSpec) -> list[tuple[str, Side, Side | None]]:
    """Title, side, and the side that is taken from it, if a difference is shown."""
    labels, names = selection.models(run, part), selection.conditions(run, part)
    if part.difference is None:
        arms = [Side(run, model, name) for model in labels for name in names]
        if _measures(run, part)[0] in OF_INSERTIONS:  # the base prompt has nothing to show
            arms = [side for side in arms if side.inserts] or arms
        return [(selection.title(run, part, side.model, side.condition), side, None) for side in arms]
    one, two = part.difference
    if one in run.conditions:
        title = f"{selection.condition_label(run, two)} less {selection.condition_label(run, one)}"
        titles = {model: f"{model}: {title}" if len(labels) > 1 else title for model in labels}
        return [(titles[model], Side(run, model, two), Side(run, model, one)) for model in labels]
    ends = {name: f", {selection.condition_label(run, name)}" if len(names) > 1 else "" for name in names}
    return [(f"{two} less {one}{ends[name]}", Side(run, two, name), Side(run, one, name)) for name in names]


def _panel(run: Run, part: FigureSpec, title: str, side: Side, less: Side | None) -> pl.DataFrame:
    if less is None:
        return _means(part, title, side, _measured(part, side))
    made = _compared(run, part, side, less)
    if made is None:
        made = _differences(run, part, title, side, less)
    wanted = pl.col("layer").is_in(selection.layers(run, part, less.model))
    return made.with_columns(panel=pl.lit(title)).filter(
        wanted, pl.col("head").is_in(selection.heads(run, part, less.model)), pl.col("value").is_not_null()
    )


_COLUMNS = ("layer", "head", "value", "low", "high", "q", "floor", "n")


def _compared(run: Run, part: FigureSpec, side: Side, less: Side) -> pl.DataFrame | None:
    """Where what is shown is a quantity that arms are compared in, its rows; None for other measures."""
    queries, names = selection.queries(run, part), _measures(run, part)
    quantity = names[0]
    if len(names) == 1 and names[0] in run.classes:
        quantity = ENRICHMENT if part.value == "enrichment" else MASS
    if len(names) > 1 or (queries, quantity) not in quantities(run):
        return None
    kind: Kinds = "condition" if side.model == less.model else "model"
    found = family(Comparison(kind, less, side), queries, quantity)
    heads = None if found is None else found[0].filter(pl.col("token_class").is_in([names[0], EVERY]), pl.col("n") > 0)
    return None if heads is None or not len(heads) else heads.rename({"difference": "value"}).select(_COLUMNS)


def _differences(run: Run, part: FigureSpec, title: str, side: Side, less: Side) -> pl.DataFrame:
    """Of a score, or of the sum of several classes."""
    found, base, matching = _measured(part, side), _measured(part, less), matched(less, side)
    change = _change(found, base, matching)
    if not len(change):
        raise AttnscopeError(
            "there is no prompt to show", where=title, allowed="prompts that both have", todo="choose others"
        )
    effect = _among_classes(change, part, side, less, matching)
    layers, heads = (np.asarray(each)[place] for each, place in zip(_axes(less), matching.one, strict=True))
    made = pl.DataFrame(
        {
            "layer": layers,
            "head": heads,
            "value": effect.mean,
            "low": effect.low,
            "high": effect.high,
            "q": np.full(len(layers), np.nan) if _one_way(part, side, less, found, base) else effect.q,
            "floor": _floor(side, found, matching.two, part) + _floor(less, base, matching.one, part),
            "n": effect.n,
        }
    )
    return made.with_columns(pl.col("value", "low", "high", "q", "floor").fill_nan(None)).select(_COLUMNS)


def _one_way(part: FigureSpec, side: Side, less: Side, found: Measured, base: Measured) -> bool:
    """Whether a change would always be found: of what only an insertion has, or what one side has nothing of."""
    names = _measures(side.run, part)
    if names[0] in OF_INSERTIONS:
        return side.inserts != less.inserts
    return set(names) <= set(side.run.classes) and (not found.values.any() or not base.values.any())


def _change(found: Measured, base: Measured, matching: Matching) -> NDArray[np.float64]:
    """(prompts that both have, pairs of heads)."""
    _, mine, theirs = np.intersect1d(found.prompts, base.prompts, return_indices=True)
    made: NDArray[np.float64] = found.values[mine][:, *matching.two] - base.values[theirs][:, *matching.one]
    return made


def _among_classes(change: Any, part: FigureSpec, side: Side, less: Side, matching: Matching) -> Effects:
    """A map's changes (prompts, heads), tested together with those of the other classes, of which it is one."""
    run, pairs, names = side.run, change.shape[1], _measures(side.run, part)
    family = [change]
    for other in run.classes if set(names) <= set(run.classes) else ():
        if [other] != names:
            found, base = (_measured(part.model_copy(update={"measure": other}), each) for each in (side, less))
            if not found.values.any() or not base.values.any():
                continue  # what one side has nothing of is not tested
            family.append(_change(found, base, matching))
    whole = effects(np.concatenate(family, 1), seed=run.study.seed)
    return Effects(**{name: values[:pairs] for name, values in vars(whole).items()})


def _means(part: FigureSpec, title: str, side: Side, found: Measured) -> pl.DataFrame:
    layers, heads = (each.ravel() for each in np.meshgrid(*_axes(side), indexing="ij"))
    flat = found.values.reshape(len(found.values), -1)
    made = pl.DataFrame(
        {
            "panel": [title] * len(layers),
            "layer": layers,
            "head": heads,
            "value": mean_of_seen(flat, 0),
            "n": (~np.isnan(flat)).sum(0),
        },
        schema_overrides={"n": pl.Int64},
    )
    nothing = pl.lit(None, dtype=pl.Float64)
    return made.filter(
        pl.col("layer").is_in(selection.layers(side.run, part, side.model)),
        pl.col("head").is_in(selection.heads(side.run, part, side.model)),
        pl.col("value").is_not_nan(),
    ).select("panel", "layer", "head", "value", low=nothing, high=nothing, q=nothing, floor=nothing, n="n")


def _measured(part: FigureSpec, side: Side) -> Measured:
    names, queries = _measures(side.run, part), selection.queries(side.run, part)
    return measured(side, queries, names, enrichment=part.value == "enrichment", where=f"figure {part.name}: measure")


def _axes(side: Side) -> tuple[list[int], list[int]]:
    return side.run.layers(side.model), side.run.heads(side.model)


def _floor(side: Side, found: Measured, places: tuple[Any, Any], part: FigureSpec) -> Any:
    noise = side.run.noise(side.model, selection.queries(side.run, part))
    return np.nan if noise is None or found.per_mass is None else (noise * found.per_mass)[places]


def _measures(run: Run, part: FigureSpec) -> list[str]:
    return part.measures or selection.classes(run, part)[:1]


def look(run: Run, part: FigureSpec, made: pl.DataFrame) -> Look:
    wanted = _measures(run, part)
    names = sentences.listed([selection.class_label(run, each) for each in wanted])
    words = title_of(wanted[0]) or f"attention on {names}"
    if part.value == "enrichment" and wanted[0] in run.classes:
        words += ", times a uniform gaze"
    gaze = selection.group_words(selection.queries(run, part))
    kind = "Change of the" if part.difference else "The"
    pairs = [(less, side) for _, side, less in _panels(run, part) if less is not None and less.model != side.model]
    methods = dict.fromkeys(matched(*pair).method for pair in pairs)
    how = "".join(f", {method}" for method in methods)
    if methods and BY_NUMBER not in methods:
        how += f"; layers and heads are {pairs[0][0].model}'s"
    return Look(
        title=part.title or f"All heads: {'change in ' if part.difference else ''}{words}",
        y=part.y or (f"change in {words}" if part.difference else words),
        caption=f"{kind} gaze of {gaze}, mean over n = {sentences.range_of(*extent(made['n']), 'prompt')}, "
        + (f"paired by prompt{how}" if part.difference else "each head by itself")
        + _untested_words(part, made)
        + (" It is 0 everywhere: no token there belongs to it." if _is_empty(run, wanted, made) else "")
        + (" Layers and heads are numbered from 1." if part.number_from else ""),
        number_from=part.number_from,
    )


def _is_empty(run: Run, wanted: list[str], made: pl.DataFrame) -> bool:
    return set(wanted) <= set(run.classes) and not (made["value"] != 0).any()


def _untested_words(part: FigureSpec, made: pl.DataFrame) -> str:
    if not part.difference or not made["q"].is_null().any():
        return "."
    if extent(made["n"])[0] < FEWEST:
        return "; too few prompts to tell which changes may be chance."
    return "; not tested, for one side has none of it by itself."


def draw(made: pl.DataFrame, seen: Look) -> Description:
    signed = bool((made["value"] < 0).any())
    reach = float(made["value"].abs().max() or 0) or 1.0  # type: ignore[arg-type]
    scale = (
        alt.Scale(scheme="purpleorange", domain=[-reach, reach])
        if signed
        else alt.Scale(scheme="viridis", domain=[0, reach])
    )
    ranked = made["row"].is_not_null().any()
    layers_across = max(1, made["layer"].n_unique())
    step, beside = _sizes(seen.room, layers_across, made["panel"].n_unique())
    legend = alt.Legend() if seen.room is None or seen.room > NARROW else alt.Legend(orient="bottom")
    charts = []
    for title in dict.fromkeys(made["panel"]):
        base = alt.Chart().encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
            y=alt.Y("head:O", title="head") if ranked is False else alt.Y("row:O", title="strongest first"),
        )
        told = [
            alt.Tooltip("layer:O"),
            alt.Tooltip("head:O"),
            alt.Tooltip("value:Q", format=".4f"),
            alt.Tooltip("q:Q", format=".2g"),
            alt.Tooltip("n:Q"),
        ]
        cells = base.mark_rect().encode(
            alt.Color("value:Q", scale=scale, title=sentences.wrapped(seen.y, 18), legend=legend), told
        )
        unsure = base.transform_filter(UNSURE).mark_rect(color=GRAY).encode(tooltip=told)
        below = (
            base.transform_filter(f"datum.value < {-MARKED * reach} && !{UNSURE}")
            .mark_text(fontSize=9, text="–")
            .encode(alt.ColorValue(INK, condition={"test": f"datum.value < {-DARK * reach}", "value": PAPER}))
        )
        layers = (cells, unsure, below) if signed else (cells, unsure)
        part = made.filter(pl.col("panel") == title)
        charts.append(joined("layer", layers, part, width=alt.Step(step), height=alt.Step(step), title=title))
    return joined("concat", charts, columns=beside, title=selection.title_of(seen, marks(made, seen), 80))


def _sizes(room: int | None, layers: int, panels: int) -> tuple[int, int]:
    """A cell's side, and how many panels stand side by side."""
    if room is None:
        return STEP, max(1, WIDEST // layers)
    free = room - (LEGEND if room > NARROW else 0)
    beside = max(1, min(panels, free // (layers * STEP + MARGIN)))
    return max(6, min(LARGEST, (free // beside - MARGIN) // layers)), beside


def marks(made: pl.DataFrame, seen: Look) -> str:
    told = " The heads of each layer are sorted by size." if made["row"].is_not_null().any() else ""
    told += " A dash: below zero by over a tenth of the scale." if (made["value"] < 0).any() else ""
    if made["q"].is_not_null().any():
        told += f" Gray: may be chance (q >= {FALSE_DISCOVERIES}){UNDER if made['floor'].is_not_null().any() else ''}."
    return told


def read(made: pl.DataFrame, seen: Look) -> str:
    numbers, observed = [], []
    for title in dict.fromkeys(made["panel"]):
        part = made.filter(pl.col("panel") == title)
        ordered = part.sort("value", descending=True, maintain_order=True)
        for word, some in (("highest", ordered.head(5)), ("lowest", ordered.reverse().head(3))):
            told = sentences.listed([_told(row) for row in some.iter_rows(named=True)])
            numbers.append(f"**{title}**: {word} {told}.")
        mean = sentences.number(float(part["value"].mean()))  # type: ignore[arg-type]
        observed.append(f"{title}: the mean over {len(part)} heads is {mean}.")
        above = int((part["value"] > 0).sum())
        if part["q"].is_not_null().any():
            above_floor = pl.col("value").abs() > pl.col("floor").fill_null(0)
            sure = part.filter(pl.col("q") < FALSE_DISCOVERIES, above_floor)
            up, down = int((sure["value"] > 0).sum()), int((sure["value"] < 0).sum())
            observed.append(
                f"{title}: {len(sure)} of {len(part)} heads change by more than chance would make "
                f"(q < {FALSE_DISCOVERIES}), {up} of them up and {down} down."
            )
            hidden = len(part.filter(pl.col("q") < FALSE_DISCOVERIES, ~above_floor))
            if hidden:
                observed.append(f"{title}: rounding could make {hidden} more with such a q, so these are not counted.")
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
                f"Across: {_numbers('layer', made)}. Down: {_numbers('head', made)}."
                if made["row"].is_null().any()
                else f"Across: {_numbers('layer', made)}. Down: the layer's heads, the largest in size first.",
                "All panels have one scale." if made["panel"].n_unique() > 1 else None,
            ],
            "Numbers": numbers,
            "Observations": observed,
        },
    )


def _told(row: dict[str, Any]) -> str:
    """A head and its number; of a change, whether it may be chance."""
    told = f"layer {row['layer']} head {row['head']} {sentences.number(row['value'])}"
    if row["q"] is None or (row["q"] < FALSE_DISCOVERIES and abs(row["value"]) > (row["floor"] or 0)):
        return told
    return f"{told} (may be chance, q = {row['q']:.2g})" if row["q"] >= FALSE_DISCOVERIES else f"{told} (rounding)"


def _numbers(what: str, made: pl.DataFrame) -> str:
    found = sorted(set(made[what]))
    if len(found) == found[-1] - found[0] + 1:
        return f"{what} {found[0]} to {found[-1]}"
    return f"{what}s {sentences.listed([str(each) for each in found])}"


KIND = Kind("heatmap", "a map of all heads", FIELDS, table, look, draw, read, ("panel", "layer", "head"), marks)
