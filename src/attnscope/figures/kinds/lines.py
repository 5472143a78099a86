"""Lines along the prompt: what each token receives from one head, a line a condition, a panel a head."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import altair as alt
import polars as pl

from attnscope.analysis.lines import along_prompt, ranked
from attnscope.analysis.run import Run
from attnscope.analysis.spread import INTERVAL, extent
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Field, Kind, Look
from attnscope.figures.selection import LINES
from attnscope.study.parts import FigurePart, PanelPart

SHARED, FULL = "shared", "full"
FIELDS = (
    Field("panel", pl.String, "the panel's title, such as 'Qwen2.5-7B-Math Layer 1 Head 22'; in order"),
    Field("form", pl.String, "shared (tokens all lines have) or full (the whole sequence)"),
    Field("series", pl.String, "the line's name, such as a condition's"),
    Field("position", pl.Int64, "the token's place on the horizontal axis"),
    Field("attention", pl.Float64, "the line's height"),
    Field("low", pl.Float64, "lower end of its interval", optional=True),
    Field("high", pl.Float64, "upper end of its interval", optional=True),
    Field("n", pl.Int64, "how many prompts reach this position", optional=True),
    Field("inserted", pl.Boolean, "whether the token is inserted in most prompts", optional=True),
    Field("rank", pl.Int64, "the head's rank by how far its first two lines are apart", optional=True),
    Field("of", pl.Int64, "among so many heads", optional=True),
)
X_TITLES = {SHARED: "token position, insertion cut out", FULL: "token position, whole sequence"}


def panels(run: Run, part: FigurePart) -> Sequence[PanelPart]:
    """Those of the study, or the first head of each model."""
    if part.panels:
        return part.panels
    first = part.number_from
    return [
        PanelPart(model=model, layer=run.layers(model)[0] + first, head=run.heads(model)[0] + first)
        for model in selection.models(run, part)
    ]


def table(run: Run, part: FigurePart) -> pl.DataFrame:
    names, group = selection.conditions(run, part), selection.queries(run, part)
    forms = [SHARED, FULL] if part.form == "both" else [part.form]
    parts = []
    for panel in panels(run, part):
        layer, head = selection.panel_place(run, part, panel.model, panel.layer, panel.head)
        rank = ranked(run, group, panel.model, names[:2], over=part.over) if len(names) > 1 else {}
        for form in forms:
            lines = along_prompt(run, group, panel.model, layer, head, names, shared=form == SHARED, over=part.over)
            parts.append(
                lines.with_columns(
                    panel=pl.lit(f"{panel.model} Layer {panel.layer} Head {panel.head}"),
                    form=pl.lit(form),
                    series=pl.col("condition").replace_strict({n: selection.condition_label(run, n) for n in names}),
                    rank=pl.lit(rank.get((layer, head)), dtype=pl.Int64),
                    of=pl.lit(len(rank) or None, dtype=pl.Int64),
                ).select(field.name for field in FIELDS)
            )
    return pl.concat(parts)


def look(run: Run, part: FigurePart, made: pl.DataFrame) -> Look:
    over = "the queries that can see it" if part.over == "visible" else "all queries"
    group = selection.queries(run, part)
    gaze = f"{selection.group_words(group)}, mean over {over}" if group != "last" else "the last token"
    _, most = extent(made["n"])
    interval = f"band: {INTERVAL}" if most > 1 else "one prompt, so no interval"
    return Look(
        title=part.title or "Attention received along the prompt",
        y=part.y or "average attention weight",
        caption=f"Gaze of {gaze}; mean over up to {most:.0f} prompts, matched by token position, as far as half of "
        f"them reach; {interval}." + (" Layers and heads are numbered from 1." if part.number_from else ""),
        colours=selection.condition_colours(run, selection.conditions(run, part)),
        number_from=part.number_from,
    )


def draw(made: pl.DataFrame, seen: Look) -> alt.TopLevelMixin:
    titles, forms = (list(dict.fromkeys(made[name])) for name in ("panel", "form"))
    series = list(dict.fromkeys(made["series"]))
    colours = [seen.colours.get(name) or LINES[place % len(LINES)] for place, name in enumerate(series)]
    scale = alt.Scale(domain=series, range=colours)
    width = 300 if len(titles) > 1 else 640
    rows = []
    for form in forms:
        charts = [
            _panel(
                made.filter(pl.col("panel") == title, pl.col("form") == form),
                title if form == forms[0] else "",
                seen.y if place == 0 else "",
                X_TITLES.get(form, form),
                scale,
                width,
            )
            for place, title in enumerate(titles)
        ]
        rows.append(alt.hconcat(*charts))
    title = alt.Title(seen.title, subtitle=textwrap.wrap(seen.caption, 130 if len(titles) > 1 else 100), anchor="start")
    made_of: alt.TopLevelMixin = alt.vconcat(*rows).properties(title=title).resolve_scale(color="shared")
    return made_of


def _panel(
    part: pl.DataFrame, title: str, y: str, x: str, scale: alt.Scale, width: int
) -> alt.LayerChart | alt.FacetChart:
    span = part.filter(pl.col("inserted"))["position"]
    place = alt.X("position:Q", title=x, scale=alt.Scale(nice=False))
    colour = alt.Color(
        "series:N",
        scale=scale,
        legend=alt.Legend(title=None, orient="top", symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=2),
    )
    base = alt.Chart(part)
    layers: list[alt.Chart] = []
    if len(span):
        box = alt.Chart(pl.DataFrame({"from": [span.min()], "to": [span.max()], "label": ["inserted"]}))
        layers.append(box.mark_rect(color="#999999", opacity=0.18).encode(x=alt.X("from:Q", title=x), x2="to:Q"))
        layers.append(
            box.mark_text(align="left", baseline="top", dx=3, dy=3, fontStyle="italic", color="#555555").encode(
                x=alt.X("from:Q", title=x), y=alt.value(0), text="label"
            )
        )
    if part["low"].is_not_null().any():
        band = base.transform_calculate(low="max(0, datum.low)")  # a mean of shares is not below zero
        layers.append(band.mark_area(opacity=0.22).encode(x=place, y="low:Q", y2="high:Q", color=colour))
    layers.append(
        base.mark_line(strokeWidth=1.4).encode(
            x=place,
            y=alt.Y("attention:Q", title=y or None),
            color=colour,
            tooltip=["series", "position", alt.Tooltip("attention", format=".4f"), "n"],
        )
    )
    return alt.layer(*layers).properties(width=width, height=190, title=title)


def read(made: pl.DataFrame, seen: Look) -> str:
    titles, series = list(dict.fromkeys(made["panel"])), list(dict.fromkeys(made["series"]))
    forms = list(dict.fromkeys(made["form"]))
    numbers: list[str | None] = []
    observed: list[str | None] = []
    peaks: dict[str, float] = {}
    for title in titles:
        for form in forms:
            part = made.filter(pl.col("panel") == title, pl.col("form") == form)
            for name in series:
                line = part.filter(pl.col("series") == name)
                if not len(line):
                    continue
                numbers.append(f"**{title}, {form}, {name}**: {_peaks(line)}")
                if form == forms[0]:
                    peaks[f"{title}, {name}"] = float(line["attention"].max())  # type: ignore[arg-type]
                observed.append(_inserted(title, form, name, line))
            if len(series) > 1:
                observed.append(_parting(title, form, part, series[0], series[1]))
        observed.append(_rank(title, made.filter(pl.col("panel") == title), series))
    return sentences.document(
        seen.title,
        {
            "Overview": [
                f"Lines in {len(titles)} panel{'s' * (len(titles) > 1)} ({sentences.listed(titles)}); in each "
                f"{len(series)} line{'s' * (len(series) > 1)} ({sentences.listed(series)}).",
                f"Rows: {'; '.join(X_TITLES.get(form, form) for form in forms)}.",
                seen.caption or None,
            ],
            "Axes": [
                *(f"Horizontal, {form}: {_reach(made.filter(pl.col('form') == form))}." for form in forms),
                f"Vertical: {seen.y or 'attention'}; every panel has its own scale.",
            ],
            "Numbers": numbers,
            "Observations": [
                sentences.extreme(peaks, "peak", most=True),
                sentences.extreme(peaks, "peak", most=False),
                *observed,
            ],
        },
    )


def _reach(part: pl.DataFrame) -> str:
    first, last = extent(part["position"])
    return f"token position {first:.0f} to {last:.0f}"


def _peaks(line: pl.DataFrame, count: int = 3) -> str:
    top = line.sort("attention", descending=True, maintain_order=True).head(count)
    told = [
        f"{sentences.with_interval(row['attention'], row['low'], row['high'])} at position {row['position']}"
        for row in top.iter_rows(named=True)
    ]
    middle = sentences.number(float(line["attention"].median()))  # type: ignore[arg-type]
    return f"highest {sentences.listed(told)}; median {middle} over {len(line)} positions."


def _inserted(title: str, form: str, name: str, line: pl.DataFrame) -> str | None:
    inside = line.filter(pl.col("inserted"))
    if not len(inside) or len(inside) == len(line):
        return None
    outside = line.filter(~pl.col("inserted").fill_null(value=False))
    within, rest = float(inside["attention"].mean()), float(outside["attention"].mean())  # type: ignore[arg-type]
    word = "more" if within > rest else "less"
    first, last = extent(inside["position"])
    return (
        f"{title}, {form}, {name}: the inserted tokens (positions {first:.0f} to {last:.0f}) receive "
        f"{sentences.number(within)} each on average, {word} than the others ({sentences.number(rest)})."
    )


def _parting(title: str, form: str, part: pl.DataFrame, one: str, two: str) -> str | None:
    """Where the first two lines are furthest apart, and how often the first is above."""
    both = (
        part.filter(pl.col("series") == one)
        .select("position", a="attention")
        .join(part.filter(pl.col("series") == two).select("position", b="attention"), on="position")
        .with_columns(gap=pl.col("a") - pl.col("b"))
    )
    if not len(both):
        return None
    widest = both.sort(pl.col("gap").abs(), descending=True, maintain_order=True).row(0, named=True)
    if widest["gap"] == 0:
        return f"{title}, {form}: {one} and {two} are equal at all {len(both)} positions they share."
    above = int((both["gap"] > 0).sum())
    upper, lower = (one, two) if widest["gap"] > 0 else (two, one)
    return (
        f"{title}, {form}: the lines are furthest apart at position {widest['position']}, where {upper} is above "
        f"{lower} by {sentences.number(abs(widest['gap']))}; {one} is above {two} at {above} of {len(both)} positions."
    )


def _rank(title: str, part: pl.DataFrame, series: Sequence[str]) -> str | None:
    rank, of = part["rank"][0], part["of"][0]
    if rank is None or of is None or len(series) < 2:
        return None
    return (
        f"{title}: by the distance between {series[0]} and {series[1]} on shared tokens this head is number {rank} of "
        f"the {of} measured."
    )


KIND = Kind("lines", "attention received along the prompt", FIELDS, table, look, draw, read)
