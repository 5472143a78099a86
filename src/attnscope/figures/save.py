"""A chart description -> a file, in the format its name ends with. Nothing is fetched: fonts and scripts are inside."""

from __future__ import annotations

from pathlib import Path

import altair as alt

from attnscope.errors import AttnscopeError
from attnscope.places import check_place, written_whole

FORMATS = (".png", ".svg", ".pdf", ".html")
PICTURE = "the picture"
SCALE = 2  # pixels to a point, for print and dense screens


def check_path(path: Path) -> None:
    """Refuse, before any work is done, a picture that could not be written."""
    if path.suffix.lower() not in FORMATS:
        raise AttnscopeError(
            f"can't draw a '{path.suffix or path.name}' file",
            where=str(path),
            allowed=", ".join(FORMATS),
            todo="give the picture one of these endings",
        )
    check_place(path, PICTURE)


def save(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write the chart whole or not at all."""
    check_path(path)
    with written_whole(path, PICTURE) as partial:
        if path.suffix.lower() == ".html":
            chart.save(str(partial), format="html", inline=True)
        elif path.suffix.lower() == ".png":
            chart.save(str(partial), format="png", scale_factor=SCALE)
        else:
            chart.save(str(partial), format="svg" if path.suffix.lower() == ".svg" else "pdf")
