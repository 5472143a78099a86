"""Table -> a point with its interval for each class and quantity: pale if not significant, hollow if not tested."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.sides import DILUTION, REDISTRIBUTION
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.decomposition.statistics import CHANGE

TESTED = "isValid(datum.q)"
WIDTH, LETTER = 230, 6.4  # of a panel, and of a letter of its title, in pixels
UNSURE = f"{TESTED} && (datum.q >= {FALSE_DISCOVERIES} || abs(datum.value) <= datum.floor)"
COLOURS = {CHANGE: "#54278f", DILUTION: "#4393c3", REDISTRIBUTION: "#d6604d"}
OTHERS = "#1b7837"
SHAPES = {CHANGE: "diamond", DILUTION: "circle", REDISTRIBUTION: "square"}


def draw(table: pl.DataFrame, look: Look) -> Description:
    quantities = list(dict.fromkeys(table["quantity"]))
    colours = alt.Scale(domain=quantities, range=[COLOURS.get(each, OTHERS) for each in quantities])
    shapes = alt.Scale(domain=quantities, range=[SHAPES.get(each, "cross") for each in quantities])
    key = alt.Legend(title=None, orient="top")
    colour = alt.Color("quantity:N", sort=quantities, scale=colours, legend=key)
    outline = alt.Stroke("quantity:N", sort=quantities, scale=colours, legend=None)
    shape = alt.Shape("quantity:N", sort=quantities, scale=shapes)
    scale, x = _scale(table), sentences.wrapped(look.y, int(WIDTH / LETTER))
    charts = [
        _panel(title, table.filter(pl.col("panel") == title), x, (colour, outline, shape, scale))
        for title in dict.fromkeys(table["panel"])
    ]
    shared = alt.Resolve(scale=alt.ScaleResolveMap(color="shared", shape="shared"))
    beside = 3 if look.room is None else max(1, min(3, look.room // 330))
    title = selection.title_of(look, legend(table, look), 45 + 45 * min(3, len(charts)))
    return joined("concat", charts, columns=beside, resolve=shared, title=title)


def _scale(table: pl.DataFrame) -> alt.Scale:
    """One for all panels, with zero and every interval in it, and room for the points at its ends."""
    lows = [float(table[name].fill_null(0).min()) for name in ("low", "value")]  # type: ignore[arg-type]
    highs = [float(table[name].fill_null(0).max()) for name in ("high", "value")]  # type: ignore[arg-type]
    return alt.Scale(domain=[min(0, *lows), max(0, *highs)], nice=False, padding=10)


def _panel(
    title: str, panel: pl.DataFrame, x: list[str], encodings: tuple[alt.Color, alt.Stroke, alt.Shape, alt.Scale]
) -> Description:
    colour, outline, shape, scale = encodings
    base = alt.Chart(panel).encode(
        y=alt.Y("token_class:N", sort=list(dict.fromkeys(panel["token_class"])), title=None),
        yOffset=alt.YOffset("quantity:N", sort=list(dict.fromkeys(panel["quantity"]))),
    )
    opacity = alt.condition(UNSURE, alt.value(0.3), alt.value(1))
    tooltip = [
        "token_class",
        "quantity",
        alt.Tooltip("value", format=".4f"),
        alt.Tooltip("q", format=".2g"),
        "up",
        "down",
    ]
    zero = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(color="#999999").encode(x=alt.X("zero:Q", title=x))
    place = alt.X("value:Q", title=x, scale=scale)
    points = base.transform_filter(TESTED).mark_point(filled=True, size=60, opacity=1)
    points = points.encode(x=place, color=colour, shape=shape, opacity=opacity, tooltip=tooltip)
    hollow = base.transform_filter(f"!{TESTED}").mark_point(fill="white", size=50, strokeWidth=1.6, opacity=1)
    hollow = hollow.encode(x=place, stroke=outline, shape=shape, tooltip=tooltip)
    rules = base.mark_rule(strokeWidth=1.6).encode(x="low:Q", x2="high:Q", color=colour, opacity=opacity)
    lines = sentences.wrapped(title, int(WIDTH / LETTER))
    return joined("layer", (zero, rules, hollow, points), width=WIDTH, height=alt.Step(13), title=lines)


def legend(table: pl.DataFrame, look: Look) -> str:
    words = ""
    unsure = (table["q"] >= FALSE_DISCOVERIES) | (table["value"].abs() <= table["floor"])
    if (unsure & table["q"].is_not_null()).fill_null(False).any():
        rounding = " or within rounding error" if table["floor"].is_not_null().any() else ""
        words += f" Pale: not significant (q >= {FALSE_DISCOVERIES} among the panel's classes){rounding}."
    return words + " Hollow: not tested." * bool(table["q"].is_null().any())
