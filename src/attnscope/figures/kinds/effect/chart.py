"""Table -> lines over layers, maps of heads, or points with intervals; the control of each intervention beside it."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.effect_sentences import differs
from attnscope.figures.kind import Look
from attnscope.figures.kinds.effect.statistics import (
    CONTROL,
    INTERVENTION,
    PLACEBO_DRAW,
    of_interventions,
)
from attnscope.figures.kinds.heatmap import chart as maps

HEIGHT, STEP = 210, 18  # pixels: of lines, and of a row of points
WIDE, NARROW = 560, 270  # a panel alone, and one of several
BESIDE = 3  # panels in a row
NAMES, FEWER = 300, 130  # how long the names of rows may be, and on a screen
LETTER = 6.2  # the width of a letter of a title
COLOUR = selection.LINES[0]  # of what has none of its own
CONTROLS = selection.LINES[1]
ROLES = [INTERVENTION, CONTROL]
DASHES = alt.Scale(domain=ROLES, range=[[1, 0], [5, 3]])
SHAPES = alt.Scale(domain=ROLES, range=["circle", "diamond"])


def draw(table: pl.DataFrame, look: Look) -> Description:
    if table["head"].is_not_null().any():
        return maps.draw(cells(table), look)
    shown = _marked(table)
    of_layers = bool(shown["layer"].is_not_null().any())
    titles = list(dict.fromkeys(shown["panel"]))
    beside = min(BESIDE, len(titles)) if of_layers else 1
    width = NARROW if of_layers and len(titles) > 1 else WIDE
    if look.room is not None:
        beside = max(1, min(beside, look.room // 320))
        width = max(160, look.room // beside - (85 if of_layers else FEWER + 40))
    y_or_x = alt.Scale(zero=False, domain=_reach(shown))
    panel = _lines if of_layers else _points
    charts = [
        panel(shown.filter(pl.col("panel") == title), title, look, y_or_x, width, first=not place % beside)
        for place, title in enumerate(titles)
    ]
    wide = max(70, beside * (width + 60) // 6)
    title = selection.title_of(look, legend(table, look), wide)
    return joined("concat", charts, columns=beside, title=title)


def cells(table: pl.DataFrame) -> pl.DataFrame:
    """A map's cells; of a control in a panel of its own."""
    shown = _shown(table)
    title = pl.when(pl.col("role") == CONTROL).then(pl.format("{}: control", "panel")).otherwise("panel")
    names = ("layer", "head", "value", "low", "high", "q", "same_q", "least_q", "n")
    nothing = {"floor": pl.lit(None, dtype=pl.Float64), "row": pl.lit(None, dtype=pl.Int64)}
    return shown.select(title.alias("panel"), *names).with_columns(**nothing)


def _marked(table: pl.DataFrame) -> pl.DataFrame:
    """What is drawn: which points are filled, and each one's colour."""
    shown = _shown(table)
    own = pl.when(pl.col("role") == CONTROL).then(pl.lit(CONTROLS)).otherwise(pl.col("colour").fill_null(COLOUR))
    filled = [row["role"] != CONTROL and differs(row) is True for row in shown.iter_rows(named=True)]
    return shown.with_columns(colour=own, filled=pl.Series(filled, dtype=pl.Boolean))


def _shown(table: pl.DataFrame) -> pl.DataFrame:
    """Without second draws; what is no control is an intervention."""
    role = pl.when(pl.col("role").is_in(ROLES)).then("role").otherwise(pl.lit(INTERVENTION))
    return table.filter((pl.col("role") != PLACEBO_DRAW).fill_null(value=True)).with_columns(role=role)


def _reach(shown: pl.DataFrame) -> list[float]:
    """The ends of the scale that all panels share; 0 is among them."""
    numbers = pl.concat([shown["value"], shown["low"], shown["high"]]).drop_nulls()
    low, high = min(0.0, float(numbers.min())), max(0.0, float(numbers.max()))  # type: ignore[arg-type]
    room = 0.04 * (high - low) or 1.0
    return [low - room * (low < 0), high + room * (high > 0 or low == high)]


def legend(table: pl.DataFrame, look: Look) -> str:
    if table["head"].is_not_null().any():
        return maps.legend(cells(table), look)
    shown = of_interventions(table)
    beside = table["role"].eq(CONTROL).any()
    marks = "Dashed" if table["layer"].is_not_null().any() else "Diamond"
    words = f" {marks}: the control." if beside else ""
    tested = [differs(row) for row in shown.iter_rows(named=True)]
    if all(each is None for each in tested):
        return f"{words} Open points: not tested."
    against = "the control" if shown["against"].is_not_null().all() else "the model as it is"
    if 0 < shown["against"].null_count() < len(shown):
        against = "the control or, without one, from the model as it is"
    return (
        f"{words} Filled: differs from {against} (q < {FALSE_DISCOVERIES} {look.among}). Open: not significant, or not "
        "tested."
    )


def _tooltip(*names: str) -> list[alt.Tooltip]:
    numbers = [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("value", "low", "high")]
    rates = [alt.Tooltip(f"{name}:Q", format=".2g") for name in ("q", "difference_q")]
    return [*(alt.Tooltip(f"{name}:N") for name in names), *numbers, *rates, alt.Tooltip("n:Q")]


def _lines(panel: pl.DataFrame, title: str, look: Look, scale: alt.Scale, width: int, *, first: bool) -> Description:
    ticks = alt.Axis(tickMinStep=1, format="d")
    alone = panel["place"].str.starts_with("layer ").all()
    x = alt.X(
        "layer:Q",
        title="layer" if alone else "first layer of the window",
        scale=alt.Scale(nice=False, padding=8),
        axis=ticks,
    )
    words = sentences.wrapped(look.y, int(HEIGHT / LETTER)) if first else None
    y = alt.Y("value:Q", title=words, scale=scale)
    colour = alt.Color("colour:N", scale=None)
    base = alt.Chart()
    layers: list[Any] = [_zero(alt.Y("nothing:Q", scale=scale))]
    if panel["low"].is_not_null().any():
        band = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_area(opacity=0.18)
        layers.append(band.encode(x, alt.Y("low:Q", scale=scale), alt.Y2("high:Q"), colour, alt.Detail("role:N")))
        if panel["layer"].n_unique() == 1:  # a band has no width there
            rule = base.mark_rule(strokeWidth=1.6)
            layers.append(rule.encode(x, alt.Y("low:Q", scale=scale), alt.Y2("high:Q"), colour, alt.Detail("role:N")))
    dash = alt.StrokeDash("role:N", scale=DASHES, legend=None)
    layers.append(base.mark_line(strokeWidth=1.6).encode(x, y, colour, dash))
    layers += _marks(base, x, y, "intervention", "place")
    return joined(
        "layer", layers, panel, width=width, height=HEIGHT, title=sentences.wrapped(title, int(width / LETTER))
    )


def _points(panel: pl.DataFrame, title: str, look: Look, scale: alt.Scale, width: int, *, first: bool) -> Description:
    rows = list(dict.fromkeys(panel["place"]))
    several = panel["role"].n_unique() > 1
    names = alt.Axis(labelLimit=NAMES if look.room is None else FEWER, grid=False)
    y = alt.Y("place:N", title=None, sort=rows, scale=alt.Scale(paddingInner=0.3), axis=names)
    aside = [alt.YOffset("role:N", sort=ROLES)] if several else []
    x = alt.X("value:Q", title=sentences.wrapped(look.y, int(width / LETTER)), scale=scale)
    base = alt.Chart()
    rule = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_rule(strokeWidth=1.6)
    ends = rule.encode(alt.X("low:Q", scale=scale), alt.X2("high:Q"), y, alt.Color("colour:N", scale=None), *aside)
    layers = [_zero(alt.X("nothing:Q", scale=scale)), ends, *_marks(base, x, y, "intervention", "place", aside=aside)]
    height = alt.Step(STEP, **{"for": "offset"}) if several else alt.Step(STEP + 6)
    return joined("layer", layers, panel, width=width, height=height, title=title)


def _zero(across: alt.X | alt.Y) -> alt.Chart:
    """A line where nothing changes."""
    data = alt.InlineData(values=[{"nothing": 0}])
    line: alt.Chart = alt.Chart(data).mark_rule(color="#888", strokeWidth=1).encode(across)
    return line


def _marks(base: alt.Chart, x: alt.X, y: alt.Y, *names: str, aside: list[Any] | None = None) -> list[alt.Chart]:
    """Filled points, and open ones; those of controls have another shape."""
    shape = alt.Shape("role:N", scale=SHAPES, legend=None)
    stroke = alt.Stroke("colour:N", scale=None)
    points = base.mark_point(size=42, strokeWidth=1.6, opacity=1)
    shared = (x, y, shape, stroke, *(aside or ()))
    return [
        points.transform_filter("!datum.filled").encode(*shared, alt.FillValue("white"), tooltip=_tooltip(*names)),
        points.transform_filter("datum.filled").encode(
            *shared, alt.Fill("colour:N", scale=None), tooltip=_tooltip(*names)
        ),
    ]
