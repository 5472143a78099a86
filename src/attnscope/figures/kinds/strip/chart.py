"""Table -> the text in lines, each token on its shade; the token with the highest attention has a frame."""

from __future__ import annotations

from unicodedata import combining, east_asian_width

import altair as alt
import polars as pl

from attnscope.figures import selection
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Look

COLUMNS = 88  # characters to a line
NARROWEST = 30


def placed(tokens: pl.DataFrame) -> pl.DataFrame:
    """Tokens with the line and columns they are drawn at; line ends and tabs are shown as signs."""
    rows, line, column = [], 0, 0
    for row in tokens.iter_rows(named=True):
        shown = row["token"].replace("\r", "␍").replace("\t", "⇥")
        breaks = shown.count("\n")
        shown = shown.replace("\n", "⏎")
        shown = _cut(shown)
        width = _columns(shown)
        if column + width > COLUMNS:
            line, column = line + 1, 0
        spaces = len(shown) - len(shown.lstrip(" "))  # drawn text is trimmed, so it begins behind them
        place = {"line": line, "left": column, "word": column + spaces, "right": column + width}
        rows.append({**row, "shown": shown, **place})
        column += width
        if breaks:
            line, column = line + 1, 0
    return pl.DataFrame(rows, schema_overrides={"segment": pl.String})


def _cut(text: str) -> str:
    """A text that fits into a line."""
    if _columns(text) <= COLUMNS:
        return text
    shown = text[:COLUMNS]
    while _columns(shown) >= COLUMNS:
        shown = shown[:-1]
    return f"{shown}…"


def _columns(text: str) -> int:
    """How many letters wide a text is: Chinese characters and emoji take two, accents of their own none."""
    return sum(2 if east_asian_width(each) in "WF" else not combining(each) for each in text)


def draw(table: pl.DataFrame, look: Look) -> Description:
    panels = {title: placed(table.filter(pl.col("panel") == title)) for title in dict.fromkeys(table["panel"])}
    wide = max(NARROWEST, *(int(panel["right"].max()) for panel in panels.values()))  # type: ignore[arg-type]
    charts = [_panel(title, panel, wide, look.y) for title, panel in panels.items()]
    beside = max(1, COLUMNS // wide)  # short lines leave room for panels side by side
    apart = alt.Resolve(scale=alt.ScaleResolveMap(color="independent"))
    return joined("concat", charts, columns=beside, resolve=apart, title=selection.title_of(look))


def _panel(title: str, panel: pl.DataFrame, wide: int, scale_title: str) -> Description:
    seen = panel.drop_nulls("attention")
    shades = seen["attention"].sort(descending=True)
    top = float(shades[1] if len(shades) > 1 else shades[0]) or 1.0
    across = alt.Scale(domain=[0, wide], nice=False)  # every column as wide as a letter
    x = alt.X("left:Q", axis=None, scale=across)
    y = alt.Y("line:O", axis=None)
    colours = alt.Scale(domain=[0, top], range=["#ffffff", "#e6550d"], interpolate="rgb", clamp=True)
    legend = alt.Legend(values=[0, top / 2, top], format=".4~g")  # by default the ends are rounded
    cells = (
        alt.Chart(seen)
        .mark_rect()
        .encode(
            x=x,
            x2="right:Q",
            y=y,
            color=alt.Color("attention:Q", scale=colours, title=scale_title, legend=legend),
            tooltip=["position", "token", alt.Tooltip("attention", format=".4f"), "segment"],
        )
    )
    frame = (
        alt.Chart(seen.filter(pl.col("attention") == shades[0]))
        .mark_rect(filled=False, stroke="black", strokeWidth=1.2)
        .encode(x=x, x2="right:Q", y=y)
    )
    text = alt.Chart(panel).mark_text(align="left", font="monospace", fontSize=11.5)
    words = text.encode(x=alt.X("word:Q", axis=None, scale=across), y=y, text="shown:N")
    lines = int(panel["line"].max()) + 1  # type: ignore[arg-type]
    return joined("layer", (cells, frame, words), width=wide * 7, height=18 * lines, title=title)
