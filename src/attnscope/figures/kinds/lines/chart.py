"""Table -> lines with their bands, the inserted tokens shaded, and ticks where a line differs from the first."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.figures import selection, sentences, strokes
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look
from attnscope.figures.kinds.lines.axis import anchor_words, segment_within, x_title

HEIGHT = 190
BESIDE = 3  # panels in a row
SIGNIFICANT = f"isValid(datum.q) && datum.q < {FALSE_DISCOVERIES}"  # in Vega, null is below any positive number
LETTER = 6.2  # the width in pixels of a letter of a panel's title
STRIP = 5  # the height in pixels of the strip that shows how many prompts reach a position


def draw(table: pl.DataFrame, look: Look) -> Description:
    titles, forms = (list(dict.fromkeys(table[name])) for name in ("panel", "form"))
    scale = strokes.scale(selection.colours_of(table, "series", selection.LINES))
    width, beside = 300 if len(titles) > 1 else 640, BESIDE
    if look.room is not None:
        beside = max(1, min(BESIDE, len(titles), look.room // 340))
        width = max(160, look.room // beside - (100 if "\n" in look.y else 75))
    key = strokes.key(scale.domain, min(beside, len(titles)) * width)
    rows = []
    titled: set[str] = set()
    for start in range(0, len(titles), beside):
        for form in forms:
            charts: list[Description] = []
            for title in titles[start : start + beside]:
                panel = table.filter(pl.col("panel") == title, pl.col("form") == form)
                if len(panel):
                    y, named = "" if charts else look.y, "" if title in titled else title
                    charts.append(_panel(panel, named, y, form, scale, key, width))
                    titled.add(title)
            if charts:
                rows.append(joined("hconcat", charts) if len(charts) > 1 else charts[0])
    shared = alt.Resolve(scale=alt.ScaleResolveMap(color="shared"))
    wide = 130 if len(titles) > 1 else 100
    return joined("vconcat", rows, resolve=shared, title=selection.title_of(look, legend(table, look), wide))


def legend(table: pl.DataFrame, look: Look) -> str:
    reach = ""
    if table["n"].n_unique() > 1:
        reach = " Gray strip at the top: how many prompts reach a position; the darker, the more."
    if table["q"].is_null().all():
        return reach
    tested = f"paired by prompt (q < {FALSE_DISCOVERIES} among its positions)"
    return f"{reach} Ticks at the bottom: different from the first line, {tested}."


def _panel(
    panel: pl.DataFrame, title: str, y: str, form: str, scale: alt.Scale, key: alt.Legend, width: int
) -> Description:
    align = panel["align"][0]
    x, within = sentences.wrapped(x_title(form, align), int(width / LETTER)), segment_within(align) is not None
    if within:  # a bin stands at its middle
        panel = panel.with_columns(position=pl.col("relative"))
    panel = panel.select("series", "position", "attention", "low", "high", "n", "inserted", "q")
    found = set(panel.filter(pl.col("q") < FALSE_DISCOVERIES)["series"])
    different = {name: row for row, name in enumerate(name for name in scale.domain if name in found)}
    panel = panel.with_columns(row=pl.col("series").replace_strict(different, default=None, return_dtype=pl.Int64))
    whole = alt.Scale(domain=[0, 1]) if within else alt.Scale(nice=False, zero=False)
    place = alt.X("position:Q", title=x, scale=whole, axis=alt.Undefined if within else alt.Axis(tickMinStep=1))
    colour = alt.Color("series:N", scale=scale, legend=key)
    base = alt.Chart()
    layers = [*_anchor(align, x), *_insertion(panel, x), *_reach(panel, x)]
    if panel["low"].is_not_null().any():
        ends = {"low": "max(0, datum.low)", "high": "min(1, datum.high)"}  # whatever table it is, attention is a share
        band = base.transform_filter("isValid(datum.low) && isValid(datum.high)").transform_calculate(**ends)
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
    layers.append(strokes.dashed(line, scale.domain, key))
    for row in range(len(different)):
        there = base.transform_filter(f"datum.row === {row} && {SIGNIFICANT}")
        ticks = there.mark_tick(orient="vertical", size=5, thickness=1.6)
        layers.append(ticks.encode(place, _y(HEIGHT - 3 - 6 * row), colour))
    lines = sentences.wrapped(title, max(20, int(width / LETTER)))
    return joined("layer", layers, panel, width=width, height=HEIGHT, title=lines if len(lines) > 1 else title)


def _anchor(align: str | None, x: list[str]) -> list[alt.Chart]:
    """A line at 0 where that is a token of the same kind in every prompt."""
    if anchor_words(align) is None:
        return []
    here = alt.Chart(pl.DataFrame({"here": [0]})).mark_rule(color="#555555", strokeDash=[2, 2])
    return [here.encode(alt.X("here:Q", title=x))]


def _reach(panel: pl.DataFrame, x: list[str]) -> list[alt.Chart]:
    """A strip, the darker the more prompts reach a position, and the fewest and most in words; where that changes.

    Of several lines, the one that fewest prompts reach counts.
    """
    if panel["n"].n_unique() < 2 or panel["n"].null_count():
        return []
    counts = panel.group_by("position").agg(pl.col("n").min()).sort("position").with_columns(run=pl.col("n").rle_id())
    stretches = counts.group_by("run", maintain_order=True).agg(
        pl.col("n").first(), start=pl.col("position").min() - 0.5, stop=pl.col("position").max() + 0.5
    )
    low, high = int(panel["position"].min()), int(panel["position"].max())  # type: ignore[arg-type]
    stretches = stretches.with_columns(pl.col("start", "stop").clip(low, high))
    least, most = int(panel["n"].min()), int(panel["n"].max())  # type: ignore[arg-type]
    below = STRIP + (16 if _inserted(panel) else 3)
    shade = alt.Scale(domain=[0, most], range=[0.0, 0.8])
    words = alt.Chart(pl.DataFrame({"at": [high], "label": [sentences.range_of(least, most, "prompt")]}))
    strip = alt.Chart(stretches).mark_rect(color="#555555")
    text = words.mark_text(align="right", baseline="top", dx=-2, dy=below, fontSize=9, color="#555555")
    return [
        strip.encode(
            alt.X("start:Q", title=x),
            alt.X2("stop:Q"),
            _y(0),
            alt.Y2Value(STRIP),  # type: ignore[no-untyped-call]
            alt.Opacity("n:Q", scale=shade, legend=None),
            tooltip=[alt.Tooltip("n:Q", title="prompts")],
        ),
        text.encode(alt.X("at:Q", title=x), _y(0), alt.Text("label:N")),
    ]


def _inserted(panel: pl.DataFrame) -> list[float]:
    """The positions that are inserted in most prompts."""
    return panel.filter(pl.col("inserted") > 0.5)["position"].to_list()


def _insertion(panel: pl.DataFrame, x: list[str]) -> list[alt.Chart]:
    """A shaded box over the positions that are inserted in most prompts, and its label."""
    span = _inserted(panel)
    if not span:
        return []
    inserted = panel.filter(pl.col("inserted") > 0.5)
    label = "inserted" if (inserted["inserted"] == 1).all() else "inserted in most prompts"
    box = alt.Chart(pl.DataFrame({"from": [min(span)], "to": [max(span)], "label": [label]}))
    words = box.mark_text(align="left", baseline="top", dx=3, dy=STRIP + 3, fontStyle="italic", color="#555555")
    return [
        box.mark_rect(color="#999999", opacity=0.18).encode(alt.X("from:Q", title=x), alt.X2("to:Q")),
        words.encode(alt.X("from:Q", title=x), _y(0), alt.Text("label:N")),
    ]


def _y(pixels: int) -> alt.YValue:
    return alt.YValue(pixels)  # type: ignore[no-untyped-call]
