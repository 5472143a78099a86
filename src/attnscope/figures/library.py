"""The chart library for browsers, put together from what vl-convert carries: no network, made once and then cached."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

import vl_convert as vlc

from attnscope.places import cache_folder


@lru_cache(maxsize=1)
def chart_library() -> str:
    """A script that defines `vegaEmbed`."""
    kept = cache_folder() / "charts" / f"vega-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        made = vlc.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    partial = kept.with_name(f".{kept.name}.partial")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(made, encoding="utf-8")
        partial.replace(kept)
    except OSError:  # a cache that can't be written to is no reason not to go on
        pass
    return made
