"""A chart description -> a file, in the format its name ends with. Nothing is fetched: fonts and scripts are inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import altair as alt
import vl_convert as vlc

from attnscope.errors import AttnscopeError
from attnscope.figures.compose import drawable
from attnscope.places import check_place, written_whole

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
    description = json.dumps(drawable(chart.to_dict()))
    with written_whole(path, PICTURE) as partial:
        partial.write_bytes(_CONTENT[path.suffix.lower()](description))


_CONTENT: dict[str, Callable[[str], bytes]] = {
    ".png": lambda description: vlc.vegalite_to_png(description, scale=SCALE),
    ".svg": lambda description: vlc.vegalite_to_svg(description).encode(),
    ".pdf": lambda description: vlc.vegalite_to_pdf(description),
    ".html": lambda description: vlc.vegalite_to_html(description, bundle=True).encode(),
}
FORMATS = tuple(_CONTENT)
