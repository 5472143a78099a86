"""Lines along the prompt: what each token receives from one head, a line a condition, a panel a head."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import altair as alt
import polars as pl

from attnscope.analysis.effects import FALSE_DISCOVERIES
from attnscope.analysis.lines import Line, along_prompt
from attnscope.analysis.ranking import Ranking, ranked_by_distance
from attnscope.analysis.received import Heads
from attnscope.analysis.run import Run
from attnscope.analysis.spread import INTERVAL, extent
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Field, Kind, Look
from attnscope.figures.selection import LINES
from attnscope.study.schema import FigureSpec, HeadSpec, PanelSpec

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
    Field("inserted", pl.Float64, "the share of prompts whose token at this position is inserted", optional=True),
    Field("within", pl.Float64, "what an inserted token receives, mean within prompts, then over them", optional=True),
    Field("without", pl.Float64, "what another token receives, likewise", optional=True),
    Field("against", pl.String, "the line that this one is compared with", optional=True, gaps=True),
    Field("difference", pl.Float64, "this line less that one, mean within prompts", optional=True, gaps=True),
    Field("difference_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Field("difference_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Field("q", pl.Float64, "its false discovery rate among the line's positions", optional=True, gaps=True),
    Field("rank", pl.Int64, "the head's rank by how far its first two lines are apart", optional=True),
    Field("of", pl.Int64, "among so many heads", optional=True),
    Field("effect", pl.Float64, "how far they are apart, mean over shared tokens and prompts", optional=True),
    Field("typical", pl.Float64, "the median of that over all heads", optional=True),
    Field("reliability", pl.Float64, "of the ranking, split-half, from 0 to 1", optional=True),
    Field("over", pl.String, "mean over the queries that can see the token (visible), or over all", optional=True),
    Field("colour", pl.String, "of the line, such as '#1f77b4'", optional=True),
)
OVER = {"visible": "\nmean over the queries\nthat see the token", "all": "\nmean over all queries"}
KEYS = ("panel", "form", "series", "position")
HEIGHT = 190
BESIDE = 3  # panels in a row
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
X_TITLES = {SHARED: "token position, insertion cut out", FULL: "token position, whole sequence"}


def panels(run: Run, part: FigureSpec) -> Sequence[PanelSpec]:
    """Those of the study, the heads of the largest effect, or the first head of each model."""
    if part.panels:
        return part.panels
    first = part.number_from
    if part.top is not None:
        return [
            PanelSpec(model=model, layer=layer + first, head=head + first)
            for model in selection.models(run, part)
            for layer, head in _ranking(run, part, model).top(part.top)
        ]
    return [
        PanelSpec(model=model, layer=run.layers(model)[0] + first, head=run.heads(model)[0] + first)
        for model in selection.models(run, part)
    ]


def table(run: Run, part: FigureSpec) -> pl.DataFrame:
    shown = panels(run, part)
    compared = len(selection.conditions(run, part)) > 1
    ranks = {model: _ranking(run, part, model) for model in {panel.model for panel in shown} if compared}
    colours = _colours(run, part)
    parts = []
    for panel in shown:
        ranked = None if panel.also else ranks.get(panel.model)
        place = selection.place_of(run, part, panel)
        rank = ranked.rank.get(place) if ranked else None
        lines = _lines(run, part, panel)
        for form in _forms(part, panel):
            parts.append(
                along_prompt(run, lines, shared=form == SHARED)
                .with_columns(
                    panel=pl.lit(panel_title(panel)),
                    form=pl.lit(form),
                    rank=pl.lit(rank, dtype=pl.Int64),
                    of=pl.lit(ranked.of if ranked and ranked.rank else None, dtype=pl.Int64),
                    effect=pl.lit(ranked.effect[place] if ranked and rank else None, dtype=pl.Float64),
                    typical=pl.lit(ranked.typical if ranked and rank else None, dtype=pl.Float64),
                    reliability=pl.lit(ranked.reliability if ranked else None, dtype=pl.Float64),
                    over=pl.lit(part.over),
                    colour=pl.col("series").replace_strict(colours, default=None, return_dtype=pl.String),
                )
                .select(field.name for field in FIELDS)
            )
    return pl.concat(parts)


def _ranking(run: Run, part: FigureSpec, model: str) -> Ranking:
    """Of a model's heads by how far their first two lines are apart."""
    one, two = selection.conditions(run, part)[:2]
    return ranked_by_distance(run, model, selection.queries(run, part), part.over, one, two)


def _forms(part: FigureSpec, panel: PanelSpec) -> list[str]:
    """Lines of several models have only their shared tokens in common."""
    if any(each.model != panel.model for each in panel.also):
        return [SHARED]
    return [SHARED, FULL] if part.form == "both" else [part.form]


def _lines(run: Run, part: FigureSpec, panel: PanelSpec) -> list[Line]:
    """A line for each head of the panel under each condition."""
    names, group = selection.conditions(run, part), selection.queries(run, part)
    made = []
    for each in panel.places:
        layer, head = selection.place_of(run, part, each)
        chosen = Heads(each.model, group, (layer,), (head,), part.over)
        for name in names:
            label = selection.condition_label(run, name)
            if panel.also:
                label = head_label(panel, each) + (f", {label}" if len(names) > 1 else "")
            made.append(Line(label, chosen, name))
    return made


def panel_title(panel: PanelSpec) -> str:
    """Its head, or its heads."""
    heads = [f"{each.model} Layer {each.layer} Head {each.head}" for each in panel.places]
    return sentences.listed(heads)


def head_label(panel: PanelSpec, each: HeadSpec) -> str:
    """A head among others of its panel: by its model, and by its number where that is not the same for all."""
    models, numbers = {other.model for other in panel.places}, {(other.layer, other.head) for other in panel.places}
    alone = len(models) == len(panel.places) and len(numbers) == 1
    return each.model if alone else f"{each.model} L{each.layer} H{each.head}"


def look(run: Run, part: FigureSpec, made: pl.DataFrame) -> Look:
    over = "the queries that can see it" if part.over == "visible" else "all queries"
    group = selection.queries(run, part)
    gaze = f"{selection.group_words(group)}, mean over {over}" if group != "last" else "the last token"
    _, most = extent(made["n"])
    carried = any(each.model != panel.model for panel in panels(run, part) for each in panel.also)
    others = " Other models' tokens are shared out over the first one's by their characters." if carried else ""
    cut = ", drawn from 0 up" if (made["low"].fill_null(0) < 0).any() else ""
    interval = f"band: {INTERVAL}{cut}" if most > 1 else "no interval"
    many = f"up to {sentences.counted(most, 'prompt')}, matched by token position, as far as half of them reach"
    return Look(
        title=part.title or "Attention received along the prompt",
        y=f"{part.y or 'average attention weight'}{OVER[part.over] if group != 'last' else ''}",
        caption=(
            f"The {sentences.counted(part.top, 'head')} of each model whose first two lines are furthest apart, chosen "
            "on these prompts. "
            if part.top
            else ""
        )
        + f"Gaze of {gaze}; {f'mean over {many}' if most > 1 else 'one prompt'}; {interval}.{others}"
        + (" Layers and heads are numbered from 1." if part.number_from else ""),
        number_from=part.number_from,
    )


def _colours(run: Run, part: FigureSpec) -> dict[str, str]:
    """By series: conditions have their own; heads of one panel that of their model, if it has one."""
    names = selection.conditions(run, part)
    found = selection.condition_colours(run, names)
    if len(names) == 1:
        for panel in panels(run, part):
            for each in panel.places if panel.also else ():
                colour = selection.model_colour(run, each.model)
                if colour is not None:
                    found[head_label(panel, each)] = colour
    return found


def draw(made: pl.DataFrame, seen: Look) -> Description:
    titles, forms = (list(dict.fromkeys(made[name])) for name in ("panel", "form"))
    colours = selection.colours_of(made, "series", LINES)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    width, beside = 300 if len(titles) > 1 else 640, BESIDE
    if seen.room is not None:
        beside = max(1, min(BESIDE, len(titles), seen.room // 340))
        width = max(160, seen.room // beside - (100 if "\n" in seen.y else 75))
    rows = []
    titled: set[str] = set()
    for start in range(0, len(titles), beside):
        for form in forms:
            charts: list[Description] = []
            for title in titles[start : start + beside]:
                part = made.filter(pl.col("panel") == title, pl.col("form") == form)
                if len(part):
                    y, named = "" if charts else seen.y, "" if title in titled else title
                    charts.append(_panel(part, named, y, X_TITLES.get(form, form), scale, width))
                    titled.add(title)
            if charts:
                rows.append(joined("hconcat", charts) if len(charts) > 1 else charts[0])
    shared = alt.Resolve(scale=alt.ScaleResolveMap(color="shared"))
    wide = 130 if len(titles) > 1 else 100
    return joined("vconcat", rows, resolve=shared, title=selection.title_of(seen, marks(made, seen), wide))


def marks(made: pl.DataFrame, seen: Look) -> str:
    if made["q"].is_null().all():
        return ""
    return f" Ticks at the bottom: not the first line's, within prompts (q < {FALSE_DISCOVERIES})."


def _panel(part: pl.DataFrame, title: str, y: str, x: str, scale: alt.Scale, width: int) -> Description:
    part = part.select("series", "position", "attention", "low", "high", "n", "inserted", "q")
    inserted = part.filter(pl.col("inserted") > 0.5)
    span = inserted["position"]
    place = alt.X("position:Q", title=x, scale=alt.Scale(nice=False))
    key = alt.Legend(title=None, orient="top", symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=2)
    colour = alt.Color("series:N", scale=scale, legend=key)
    base = alt.Chart()
    layers: list[alt.Chart] = []
    if len(span):
        label = "inserted" if (inserted["inserted"] == 1).all() else "inserted in most prompts"
        box = alt.Chart(pl.DataFrame({"from": [span.min()], "to": [span.max()], "label": [label]}))
        layers.append(box.mark_rect(color="#999999", opacity=0.18).encode(alt.X("from:Q", title=x), alt.X2("to:Q")))
        layers.append(
            box.mark_text(align="left", baseline="top", dx=3, dy=3, fontStyle="italic", color="#555555").encode(
                alt.X("from:Q", title=x),
                _y(0),
                alt.Text("label:N"),
            )
        )
    if part["low"].is_not_null().any():
        band = base.transform_calculate(low="max(0, datum.low)")  # a mean of shares is not below zero
        layers.append(band.mark_area(opacity=0.22).encode(place, alt.Y("low:Q"), alt.Y2("high:Q"), colour))
    line = base.mark_line(strokeWidth=1.4).encode(
        x=place,
        y=alt.Y("attention:Q", title=y.split("\n") if y else None),
        color=colour,
        tooltip=[
            alt.Tooltip("series:N"),
            alt.Tooltip("position:Q"),
            alt.Tooltip("attention:Q", format=".4f"),
            alt.Tooltip("n:Q"),
        ],
    )
    if len(scale.domain) > 2:  # more than two colours are not told apart in gray
        dashes = alt.Scale(domain=scale.domain, range=[DASHES[i % len(DASHES)] for i in range(len(scale.domain))])
        line = line.encode(strokeDash=alt.StrokeDash("series:N", scale=dashes, legend=key))
    layers.append(line)
    apart = set(part.filter(pl.col("q") < FALSE_DISCOVERIES)["series"])
    for row, name in enumerate(name for name in scale.domain if name in apart):
        sure = base.transform_filter((alt.datum.series == name) & (alt.datum.q < FALSE_DISCOVERIES))
        layers.append(
            sure.mark_tick(orient="vertical", size=5, thickness=1.6).encode(
                place,
                _y(HEIGHT - 3 - 6 * row),
                colour,
            )
        )
    return joined("layer", layers, part, width=width, height=HEIGHT, title=title)


def _y(pixels: int) -> alt.YValue:
    return alt.YValue(pixels)  # type: ignore[no-untyped-call]


def read(made: pl.DataFrame, seen: Look) -> str:
    titles, forms = list(dict.fromkeys(made["panel"])), list(dict.fromkeys(made["form"]))
    numbers: list[str | None] = []
    observed: list[str | None] = []
    peaks: dict[str, float] = {}
    for title in titles:
        panel = made.filter(pl.col("panel") == title)
        for form in dict.fromkeys(panel["form"]):
            part = panel.filter(pl.col("form") == form)
            for name in dict.fromkeys(part["series"]):
                line = part.filter(pl.col("series") == name)
                numbers.append(f"**{title}, {form}, {name}**: {_peaks(line)}")
                if form == panel["form"][0]:
                    peaks[f"{title}, {name}"] = float(line["attention"].max())  # type: ignore[arg-type]
                observed.append(_inserted(title, name, line))
            if form == panel["form"][0]:  # in the whole sequence after it, a position holds different tokens
                observed.append(_parting(title, form, part))
                observed += [_differing(title, form, line) for _, line in part.group_by("series", maintain_order=True)]
        observed.append(_rank(title, panel))
    return sentences.document(
        seen.title,
        {
            "Overview": [
                f"Lines in {sentences.counted(len(titles), 'panel')}.",
                *(_held(title, made.filter(pl.col("panel") == title)) for title in titles),
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


def _held(title: str, panel: pl.DataFrame) -> str:
    names = list(dict.fromkeys(panel["series"]))
    return f"{title}: {sentences.counted(len(names), 'line')} ({sentences.listed(names)})."


def _reach(part: pl.DataFrame) -> str:
    first, last = extent(part["position"])
    return f"token position {first:.0f} to {last:.0f}"


def _peaks(line: pl.DataFrame, count: int = 3) -> str:
    top = line.sort("attention", descending=True, maintain_order=True).head(count)
    most = int(line["n"].max() or 0)  # type: ignore[arg-type]
    told = [
        f"{sentences.with_interval(row['attention'], row['low'], row['high'])} at position {row['position']}"
        + (f" (n = {row['n']})" if row["n"] is not None and row["n"] < most else "")
        for row in top.iter_rows(named=True)
    ]
    middle = sentences.number(float(line["attention"].median()))  # type: ignore[arg-type]
    return f"highest {sentences.listed(told)}; median {middle} over {len(line)} positions."


def _inserted(title: str, name: str, line: pl.DataFrame) -> str | None:
    within, rest = line["within"][0], line["without"][0]
    if within is None or rest is None:
        return None
    word = "more than" if within > rest else "less than" if within < rest else "as much as"
    return (
        f"{title}, {name}: prompt by prompt, an inserted token receives {sentences.number(within)} on average, {word} "
        f"another ({sentences.number(rest)})."
    )


def _parting(title: str, form: str, part: pl.DataFrame) -> str | None:
    """Which two lines are furthest apart and where, and how often one of them is above the other."""
    lines = {name: part.filter(pl.col("series") == name) for name in dict.fromkeys(part["series"])}
    pairs = {
        (one, two): lines[one]
        .select("position", a="attention")
        .join(lines[two].select("position", b="attention"), on="position", maintain_order="left")
        .with_columns(gap=pl.col("a") - pl.col("b"))
        for one, two in combinations(lines, 2)
    }
    pairs = {names: both for names, both in pairs.items() if len(both)}
    if not pairs:
        return None
    (one, two), both = max(pairs.items(), key=lambda pair: float(pair[1]["gap"].abs().max()))  # type: ignore[arg-type]
    widest = both.sort(pl.col("gap").abs(), descending=True, maintain_order=True).row(0, named=True)
    if widest["gap"] == 0:
        return f"{title}, {form}: {sentences.listed(list(lines))} are equal wherever they meet."
    above = int((both["gap"] > 0).sum())
    upper, lower = (one, two) if widest["gap"] > 0 else (two, one)
    return (
        f"{title}, {form}: {one} and {two} are furthest apart at position {widest['position']}, where {upper} is above "
        f"{lower} by {sentences.number(abs(widest['gap']))}; {one} is above {two} at {above} of {len(both)} positions."
    )


def _differing(title: str, form: str, line: pl.DataFrame) -> str | None:
    """At how many positions a line is not the first one's."""
    tested = line.drop_nulls("q")
    if not len(tested):
        return None
    sure = tested.filter(pl.col("q") < FALSE_DISCOVERIES)
    up = int((sure["difference"] > 0).sum())
    return (
        f"{title}, {form}: within prompts, {line['series'][0]} differs from {line['against'][0]} by more than chance "
        f"would make (q < {FALSE_DISCOVERIES}) at {len(sure)} of {len(tested)} positions, above at {up} and below at "
        f"{len(sure) - up}."
    )


def _rank(title: str, panel: pl.DataFrame) -> str | None:
    rank, of, trust, effect, typical = (panel[name][0] for name in ("rank", "of", "reliability", "effect", "typical"))
    names = list(dict.fromkeys(panel["series"]))
    if rank is None or of is None or len(names) < 2:
        return None
    return (
        f"{title}: by the distance between {names[0]} and {names[1]} on shared tokens this head is number {rank} of "
        f"the {of} measured"
        + (f", {effect / typical:.2g} times the median head" if effect is not None and typical else "")
        + (f" (split-half reliability of the ranking {trust:.2f})." if trust is not None else ".")
    )


KIND = Kind(
    "lines",
    "attention received along the prompt",
    FIELDS,
    table,
    look,
    draw,
    read,
    KEYS,
    marks,
)
