"""The chart library for browsers, built once from what vl-convert contains, then cached: no network."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

import vl_convert as vlc

from attnscope.places import cache_folder


@lru_cache(maxsize=1)
def chart_library() -> str:
    """A script that defines `vegaEmbed`."""
    cached = cache_folder() / "charts" / f"vega-{version('vl-convert-python')}.js"
    try:
        return cached.read_text(encoding="utf-8")
    except OSError:
        script = vlc.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    partial = cached.with_name(f".{cached.name}.partial")
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(script, encoding="utf-8")
        partial.replace(cached)
    except OSError:  # without a cache it is only slower
        pass
    return script
