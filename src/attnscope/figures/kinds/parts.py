"""Why attention on a class changes when something is inserted: taken from all tokens alike, or moved among them."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from attnscope.analysis.comparisons import Comparison, compare, comparisons
from attnscope.analysis.effects import FALSE_DISCOVERIES
from attnscope.analysis.run import Run
from attnscope.analysis.sides import CHANGE, DILUTION, PARTS, REDISTRIBUTION, SPLIT
from attnscope.analysis.spread import extent
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Field, Kind, Look
from attnscope.study.schema import FigureSpec

FIELDS = (
    Field("panel", pl.String, "what is compared, such as 'filler less none'; in order"),
    Field("token_class", pl.String, "the class; in order"),
    Field("part", pl.String, "change, dilution or redistribution"),
    Field("value", pl.Float64, "mean over heads and prompts"),
    Field("low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Field("high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Field("q", pl.Float64, "its false discovery rate among the panel's classes", optional=True, gaps=True),
    Field("floor", pl.Float64, "what rounding makes on average", optional=True, gaps=True),
    Field("up", pl.Int64, "heads in which it surely rises", optional=True, gaps=True),
    Field("down", pl.Int64, "heads in which it surely falls", optional=True, gaps=True),
    Field("heads", pl.Int64, "of so many", optional=True, gaps=True),
    Field("n", pl.Int64, "how many prompts", optional=True),
)
UNSURE = f"datum.q !== null && (datum.q >= {FALSE_DISCOVERIES} || abs(datum.value) <= datum.floor)"
COLOURS = {CHANGE: "#222222", DILUTION: "#4393c3", REDISTRIBUTION: "#d6604d"}
SHAPES = {CHANGE: "diamond", DILUTION: "circle", REDISTRIBUTION: "square"}


def table(run: Run, part: FigureSpec) -> pl.DataFrame:
    made = []
    for each in _compared(run, part):
        held = compare(each).overall.filter(
            pl.col("queries") == SPLIT, pl.col("quantity").is_in(list(PARTS)), pl.col("n") > 0
        )
        split = set(held.filter(pl.col("quantity") == DILUTION)["token_class"])
        shown = [name for name in selection.classes(run, part) if name in split]
        places = {name: place for place, name in enumerate(shown)}
        order = {quantity: place for place, quantity in enumerate(PARTS)}
        made.append(
            held.filter(pl.col("token_class").is_in(shown))
            .sort(pl.col("token_class").replace_strict(places), pl.col("quantity").replace_strict(order))
            .with_columns(
                panel=pl.lit(_title(run, part, each)),
                token_class=pl.col("token_class").replace_strict({n: selection.class_label(run, n) for n in shown}),
                part=pl.col("quantity"),
                value=pl.col("difference"),
            )
            .select(field.name for field in FIELDS)
        )
    found = pl.concat(made) if made else pl.DataFrame()
    if not len(found):
        raise AttnscopeError(
            "there is nothing to split into dilution and redistribution",
            where=f"figure {part.name}",
            allowed="the base prompt, conditions that insert something, and classes without inserted tokens",
            todo="add these to the study",
        )
    return found


def _compared(run: Run, part: FigureSpec) -> list[Comparison]:
    shown, labels = selection.conditions(run, part), selection.models(run, part)
    return [
        each
        for each in comparisons(run)
        if each.kind in ("condition", "control")
        and each.one.model in labels
        and {each.one.condition, each.two.condition} <= set(shown)
    ]


def _title(run: Run, part: FigureSpec, each: Comparison) -> str:
    one, two = (selection.condition_label(run, side.condition) for side in (each.one, each.two))
    title = f"{two} less {one}"
    return f"{each.one.model}: {title}" if len(selection.models(run, part)) > 1 else title


def look(run: Run, part: FigureSpec, made: pl.DataFrame) -> Look:
    interval = "bar: 95 % interval (bootstrap)" if made["low"].is_not_null().any() else "too few prompts for intervals"
    return Look(
        title=part.title or "Taken from all alike, or moved",
        y=part.y or "change in attention",
        caption=f"Gaze of {selection.group_words(SPLIT)}; mean over all heads and n = "
        f"{sentences.range_of(*extent(made['n']), 'prompt')}, paired by prompt; {interval}. "
        "Change is dilution plus redistribution; against the base prompt dilution is not tested.",
    )


def draw(made: pl.DataFrame, seen: Look) -> Description:
    names, parts = (list(dict.fromkeys(made[name])) for name in ("token_class", "part"))
    colour = alt.Color(
        "part:N",
        sort=parts,
        scale=alt.Scale(domain=parts, range=[COLOURS.get(each, "#777777") for each in parts]),
        legend=alt.Legend(title=None, orient="top"),
    )
    shape = alt.Shape(
        "part:N", sort=parts, scale=alt.Scale(domain=parts, range=[SHAPES.get(each, "cross") for each in parts])
    )
    reach = [float(made[name].fill_null(0).min()) for name in ("low", "value")] + [  # type: ignore[arg-type]
        float(made[name].fill_null(0).max())  # type: ignore[arg-type]
        for name in ("high", "value")
    ]
    scale = alt.Scale(domain=[min(0, *reach), max(0, *reach)], nice=True)
    charts = []
    for title in dict.fromkeys(made["panel"]):
        base = alt.Chart(made.filter(pl.col("panel") == title)).encode(
            y=alt.Y("token_class:N", sort=names, title=None),
            yOffset=alt.YOffset("part:N", sort=parts),
        )
        opacity = alt.condition(UNSURE, alt.value(0.3), alt.value(1))
        tooltip = [
            "token_class",
            "part",
            alt.Tooltip("value", format=".4f"),
            alt.Tooltip("q", format=".2g"),
            "up",
            "down",
        ]
        zero = (
            alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(color="#999999").encode(x=alt.X("zero:Q", title=seen.y))
        )
        points = base.mark_point(filled=True, size=60).encode(
            x=alt.X("value:Q", title=seen.y, scale=scale), color=colour, shape=shape, opacity=opacity, tooltip=tooltip
        )
        rules = base.mark_rule(strokeWidth=1.6).encode(x="low:Q", x2="high:Q", color=colour, opacity=opacity)
        charts.append(joined("layer", (zero, rules, points), width=230, height=alt.Step(13), title=title))
    shared = alt.Resolve(scale=alt.ScaleResolveMap(color="shared", shape="shared"))
    beside = 3 if seen.room is None else max(1, min(3, seen.room // 330))
    title = selection.title_of(seen, marks(made, seen), 45 + 45 * min(3, len(charts)))
    return joined("concat", charts, columns=beside, resolve=shared, title=title)


def marks(made: pl.DataFrame, seen: Look) -> str:
    return f" Pale: may be chance (q >= {FALSE_DISCOVERIES})." if _unsure(made) else ""


def _unsure(made: pl.DataFrame) -> bool:
    return bool(((made["q"] >= FALSE_DISCOVERIES) | (made["value"].abs() <= made["floor"])).fill_null(False).any())


def read(made: pl.DataFrame, seen: Look) -> str:
    numbers: list[str] = []
    observed: list[str | None] = []
    titles = list(dict.fromkeys(made["panel"]))
    for title in titles:
        panel = made.filter(pl.col("panel") == title)
        for name in dict.fromkeys(panel["token_class"]):
            rows = {row["part"]: row for row in panel.filter(pl.col("token_class") == name).iter_rows(named=True)}
            told = [f"{part} {_told(row)}" for part, row in rows.items()]
            numbers.append(f"**{title}, {name}**: {'; '.join(told)}.")
            observed.append(_larger(title, name, rows))
            observed.append(_heads(title, name, rows.get(REDISTRIBUTION)))
    return sentences.document(
        seen.title,
        {
            "Overview": [
                f"Points in {sentences.counted(len(titles), 'panel')} ({sentences.listed(titles)}), for "
                f"each class the {sentences.listed(list(dict.fromkeys(made['part'])))}.",
                seen.caption or None,
            ],
            "Axes": [f"Horizontal: {seen.y or 'change'}, all panels on one scale. Vertical: the classes."],
            "Numbers": numbers,
            "Observations": observed,
        },
    )


def _told(row: dict[str, Any]) -> str:
    told = sentences.with_interval(row["value"], row["low"], row["high"])
    if row["q"] is None:
        return told
    return f"{told}, {sentences.rate(row['q'])}{'' if row['q'] < FALSE_DISCOVERIES else ', so it may be chance'}"


def _larger(title: str, name: str, rows: dict[str, dict[str, Any]]) -> str | None:
    """How what moved stands to what was taken, if it did surely move."""
    moved = rows.get(REDISTRIBUTION)
    if moved is None or moved["q"] is None or DILUTION not in rows:
        return None
    if not _is_sure(moved):
        return f"{title}: on {name}, redistribution may be chance."
    dilution = rows[DILUTION]["value"]
    way = "the same way as" if dilution * moved["value"] > 0 else "the other way than"
    return (
        f"{title}: on {name}, redistribution ({sentences.number(moved['value'])}) goes {way} dilution "
        f"({sentences.number(dilution)})."
    )


def _is_sure(row: dict[str, Any]) -> bool:
    return bool(row["q"] < FALSE_DISCOVERIES and abs(row["value"]) > (row["floor"] or 0))


def _heads(title: str, name: str, row: dict[str, Any] | None) -> str | None:
    if row is None or row["heads"] is None or row["q"] is None:
        return None
    return (
        f"{title}: attention moves to {name} in {row['up']} and away from it in {row['down']} of {row['heads']} heads "
        f"by more than chance would make (q < {FALSE_DISCOVERIES})."
    )


KIND = Kind(
    "parts",
    "dilution and redistribution by class",
    FIELDS,
    table,
    look,
    draw,
    read,
    ("panel", "token_class", "part"),
    marks,
)
