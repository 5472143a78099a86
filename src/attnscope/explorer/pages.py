"""The files that the page is made of, and the media type of everything the explorer sends."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.exceptions import HTTPException

MEDIA_TYPES = {
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
    ".csv": "text/csv; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".vl.json": "application/json",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}
CHART_LIBRARY = "vega.js"


def add_static(app: FastAPI) -> None:
    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name == CHART_LIBRARY:
            from attnscope.figures.library import chart_library

            return Response(chart_library(), media_type=MEDIA_TYPES[".js"], headers={"cache-control": "max-age=86400"})
        content = static_files().get(name)
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type=MEDIA_TYPES[_ending(name)], headers={"cache-control": "no-cache"})


def page() -> Response:
    """The one page; its script finds the view that the address asks for."""
    return Response(static_files()["index.html"], media_type=MEDIA_TYPES[".html"])


@lru_cache(maxsize=1)
def static_files() -> dict[str, bytes]:
    """Everything the page is made of, except the chart library."""
    folder = files("attnscope.explorer") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if _ending(file.name) in MEDIA_TYPES}


def _ending(name: str) -> str:
    return f".{name.rpartition('.')[2]}"
