"""The explorer's addresses: `/api/...` answers with data, all others with the page, which finds its view itself."""

# mypy: disable-error-code=no-any-return
# (views are loaded late, so their types are not seen here; FastAPI checks every answer against its own)

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any, Literal, get_args

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.explorer import responses
from attnscope.explorer.live import Desk, Trial, Tried
from attnscope.explorer.runs import Shelf, UnknownRunError
from attnscope.study.schema import FigureSpec

TYPES = {
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
LIBRARY = "vega.js"
AT_ONCE = max(2, os.cpu_count() or 1)

RunName = Annotated[str, Path(description="A run's name, as the list of runs has it.", max_length=300)]
Model = Annotated[str, Query(description="A model's label.", max_length=500)]
Condition = Annotated[str, Query(description="A condition's name.", max_length=500)]
Queries = Annotated[str, Query(description="A query group.", max_length=500)]
Number = Annotated[int, Query(ge=0, le=1_000_000)]
MaybeNumber = Annotated[int | None, Query(ge=0, le=1_000_000)]
Room = Annotated[int | None, Query(ge=200, le=4000, description="Pixels across, where the page tells the caption.")]
Ending = Literal[".svg", ".png", ".pdf", ".csv", ".md", ".vl.json"]
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": responses.Trouble, "description": "The question's body is not JSON."},
    404: {"model": responses.Trouble, "description": "There is no such run."},
    409: {"model": responses.Trouble, "description": "The run has not what is asked for, or can't show it so."},
    422: {"model": responses.Trouble, "description": "The question can't be read."},
}


def make_app(shelf: Shelf, desk: Desk | None = None) -> FastAPI:
    """desk: where prompts can be tried, if they can."""
    app = FastAPI(
        title="attnscope explorer",
        version=version("attnscope"),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=REFUSALS,
        lifespan=_few_at_once,
    )
    app.add_exception_handler(AttnscopeError, _trouble(shelf))
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _nowhere)
    app.add_exception_handler(Exception, _broken)
    _add_runs(app, shelf, None if desk is None else desk.model)
    _add_views(app, shelf)
    if desk is not None:
        _add_tries(app, desk)
    _add_pages(app)
    return app


@asynccontextmanager
async def _few_at_once(app: FastAPI) -> AsyncIterator[None]:
    """More questions than cores at a time would only make all of them wait."""
    current_default_thread_limiter().total_tokens = AT_ONCE
    yield


def _views() -> Any:
    """What pages are made from. It takes a second to load, which the server's start need not wait for."""
    from attnscope.explorer import views

    return views


def _add_runs(app: FastAPI, shelf: Shelf, live: str | None) -> None:
    @app.get("/api/runs")
    def runs() -> responses.Shown:
        """The runs that are shown."""
        return responses.Shown(
            runs=[_line(shelf, name) for name in shelf.names], live=live, version=version("attnscope")
        )

    @app.get("/api/runs/{run}")
    def run_facts(run: RunName) -> responses.RunFacts:
        """What a run has: models, conditions, classes, measures, figures, prompts dropped."""
        return shelf.ask(run, lambda held: _views().run_facts(run, held))

    @app.get("/api/runs/{run}/evidence")
    def evidence(run: RunName) -> list[responses.Section]:
        """What shows that the run's numbers can be believed."""
        return shelf.ask(run, lambda held: _views().evidence(held))

    @app.get("/api/runs/{run}/comparisons")
    def comparisons(run: RunName) -> list[responses.ComparisonSheets]:
        """What differs between the run's conditions and models."""
        return shelf.ask(run, lambda held: _views().compared(held))


def _add_views(app: FastAPI, shelf: Shelf) -> None:
    @app.post("/api/runs/{run}/figure")
    def figure(run: RunName, part: FigureSpec, room: Room = None) -> responses.Drawn:
        """A figure as a study's line would make it, for a screen."""
        return shelf.ask(run, lambda held: _views().drawn(held, part, room))

    @app.post("/api/runs/{run}/figure/file", response_class=Response, responses={200: {"content": _types()}})
    def figure_file(run: RunName, part: FigureSpec, ending: Ending = ".svg") -> Response:
        """The same figure as a file."""
        made = shelf.ask(run, lambda held: _views().figure_file(held, part, ending))
        name = f'attachment; filename="{part.name.encode("ascii", "replace").decode().replace("?", "_")}{ending}"'
        return Response(made, media_type=TYPES[ending], headers={"content-disposition": name})

    @app.get("/api/runs/{run}/head")
    def head(run: RunName, model: Model, layer: Number, head: Number, queries: Queries) -> responses.HeadFacts:
        """What kind of head it is, and its rank among all heads."""
        return shelf.ask(run, lambda held: _views().head_facts(held, _views().Place(model, layer, head, queries)))

    @app.get("/api/runs/{run}/prompts")
    def prompts(run: RunName, find: Annotated[str, Query(max_length=200)] = "") -> responses.PromptLines:
        """The run's prompts, or those that have some words."""
        return shelf.ask(run, lambda held: _views().find_prompts(held, find))

    @app.get("/api/runs/{run}/prompt")
    def prompt(
        run: RunName,
        prompt: Number,
        model: Model,
        condition: Condition,
        queries: Queries,
        layer: MaybeNumber = None,
        head: MaybeNumber = None,
        over: Literal["visible", "all"] = "visible",
        first: Number = 0,
    ) -> responses.PromptText:
        """A prompt's text, token by token, with what each receives."""
        wanted = (prompt, model, condition, queries, layer, head, over, first)
        return shelf.ask(run, lambda held: _views().prompt_text(held, _views().Reading(*wanted)))

    @app.get("/api/runs/{run}/pair")
    def pair(
        run: RunName,
        queries: Queries,
        left_model: Model,
        left_condition: Condition,
        left_layer: Number,
        left_head: Number,
        right_model: Model,
        right_condition: Condition,
        right_layer: Number,
        right_head: Number,
    ) -> responses.Pair:
        """Two heads under two conditions, compared within prompts."""
        left = (left_model, left_layer, left_head, queries), left_condition
        right = (right_model, right_layer, right_head, queries), right_condition

        def compared(held: Run) -> responses.Pair:
            views = _views()
            sides = [views.HeadSide(views.Place(*place), condition) for place, condition in (left, right)]
            return views.pair(held, *sides)

        return shelf.ask(run, compared)


def _add_tries(app: FastAPI, desk: Desk) -> None:
    @app.post("/api/tries")
    def take(trial: Trial) -> Tried:
        """Measure a prompt; it waits for its turn."""
        return desk.take(trial)

    @app.get("/api/tries/{number}")
    def look(number: Annotated[int, Path(ge=1, le=1_000_000)]) -> Tried:
        """How a try stands."""
        return desk.look(number)


def _add_pages(app: FastAPI) -> None:
    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        known = _static_files()
        if name == LIBRARY:
            from attnscope.figures.library import chart_library

            return Response(chart_library(), media_type=TYPES[".js"], headers={"cache-control": "max-age=86400"})
        if name not in known:
            raise HTTPException(404)
        ending = f".{name.rpartition('.')[2]}"
        return Response(known[name], media_type=TYPES[ending], headers={"cache-control": "no-cache"})


@lru_cache(maxsize=1)
def _static_files() -> dict[str, bytes]:
    """Everything the page is made of, but the chart library."""
    folder = files("attnscope.explorer") / "static"
    return {each.name: each.read_bytes() for each in folder.iterdir() if f".{each.name.rpartition('.')[2]}" in TYPES}


def _types() -> dict[str, Any]:
    return {TYPES[ending].partition(";")[0]: {} for ending in get_args(Ending)}


def _line(shelf: Shelf, name: str) -> responses.RunLine:
    try:
        run = shelf.open(name)
    except AttnscopeError as error:
        return responses.RunLine(name=name, title=name, status="not to be shown", trouble=_parts(error, shelf))
    return responses.RunLine(
        name=name, title=run.study.title or name, question=run.study.question, status=run.status, trouble=None
    )


def _parts(error: AttnscopeError, shelf: Shelf) -> responses.Trouble:
    """An error without the paths of this machine: whoever looks may be elsewhere."""
    where = error.where
    for name in shelf.names:
        where = where.replace(str(shelf.path(name)), name)
    return responses.Trouble(what=error.what, where=where, allowed=error.allowed, todo=error.todo)


def _trouble(shelf: Shelf) -> Any:
    async def told(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, AttnscopeError)  # noqa: S101
        status = 404 if isinstance(error, UnknownRunError) else 409
        return JSONResponse(_parts(error, shelf).model_dump(), status)

    return told


async def _unreadable(request: Request, error: Exception) -> JSONResponse:
    """What pydantic says of a question, in four parts."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0]
    where = ".".join(str(each) for each in first["loc"][1:])[:200] or str(first["loc"][0])
    told = responses.Trouble(
        what=str(first["msg"])[:300],
        where=where,
        allowed="what /api/openapi.json and the study file's reference say",
        todo="mend the question",
    )
    return JSONResponse(told.model_dump(), 422)


async def _broken(request: Request, error: Exception) -> JSONResponse:
    """A mistake of the explorer's own; the server's terminal has the rest."""
    told = responses.Trouble(
        what=f"the explorer failed ({type(error).__name__})",
        where=request.url.path[:200],
        allowed="an answer",
        todo="tell its makers what the terminal of 'attnscope serve' says",
    )
    return JSONResponse(told.model_dump(), 500)


async def _nowhere(request: Request, error: Exception) -> Response:
    """Any address that answers no question is one of the page's own, which shows what it stands for."""
    assert isinstance(error, HTTPException)  # noqa: S101
    ours = not request.url.path.startswith(("/api/", "/static/")) and request.method in ("GET", "HEAD")
    if error.status_code == 404 and ours:
        return Response(_static_files()["index.html"], media_type=TYPES[".html"])
    told = responses.Trouble(
        what=str(error.detail), where=request.url.path[:200], allowed="the pages' own addresses", todo="go back"
    )
    return JSONResponse(told.model_dump(), error.status_code, headers=error.headers)
