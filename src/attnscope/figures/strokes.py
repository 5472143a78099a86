"""How lines are told apart without their colours: by their dashes, in the chart and in its legend."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

DASHES = ([1, 0], [6, 3], [1.5, 2.5], [9, 2.5, 1.5, 2.5])
LETTER, SPACE = 5.4, 44  # pixels: a letter of a legend's label, and what stands beside the letters
FEW = 2  # lines whose colours can be distinguished in gray, too
SAMPLE = "M-1,0H5"  # in a legend: long enough for every dash, in halves of the usual width


def scale(colours: dict[str, str]) -> alt.Scale:
    """Series -> colour."""
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def key(names: Sequence[str], room: float) -> alt.Legend:
    """The legend of lines above charts that are so many pixels wide."""
    return alt.Legend(
        title=None,
        orient="top",
        columns=columns(names, room, SPACE),
        labelLimit=int(room),
        symbolOpacity=1,
        symbolType=SAMPLE,
        symbolStrokeWidth=2,
        labelOffset=24,
        columnPadding=14,
    )


def columns(names: Sequence[str], room: float, beside: float) -> int:
    """How many entries of a legend fit into a row. beside: what each needs besides its letters."""
    return max(1, min(len(names), int(room // (LETTER * max(map(len, names), default=0) + beside))))


def dashed(line: alt.Chart, series: Sequence[str], legend: alt.Legend) -> alt.Chart:
    """Lines with a dash for each series, if there are more than a few."""
    if len(series) <= FEW:
        return line
    dashes = alt.Scale(domain=list(series), range=[DASHES[place % len(DASHES)] for place in range(len(series))])
    shown: alt.Chart = line.encode(strokeDash=alt.StrokeDash("series:N", scale=dashes, legend=legend))
    return shown
