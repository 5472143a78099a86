"""What a request gets that can't be answered: the four parts of an error, without paths of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from attnscope.errors import AttnscopeError
from attnscope.explorer.pages import page
from attnscope.explorer.responses import Problem
from attnscope.explorer.runs import ServedRuns, UnknownRunError

LONGEST = 200  # characters of a request that a response repeats


def add_handlers(app: FastAPI, runs: ServedRuns) -> None:
    app.add_exception_handler(AttnscopeError, _refused(runs))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _broken)


def problem(error: AttnscopeError, runs: ServedRuns) -> Problem:
    """An error without paths of this machine: whoever reads it may be elsewhere."""
    where = error.where
    for name in runs.names:
        where = where.replace(str(runs.path(name)), name)
    return Problem(what=error.what, where=where, allowed=error.allowed, todo=error.todo)


def _refused(runs: ServedRuns) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def respond(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, AttnscopeError)  # noqa: S101
        return _response(problem(error, runs), 404 if isinstance(error, UnknownRunError) else 409)

    return respond


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """A request that pydantic refuses."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0]
    where = ".".join(str(each) for each in first["loc"][1:])[:LONGEST] or str(first["loc"][0])
    return _response(
        Problem(
            what=str(first["msg"])[:300],
            where=where,
            allowed="see /api/openapi.json and the reference of the study file",
            todo="fix the request",
        ),
        422,
    )


async def _broken(request: Request, error: Exception) -> JSONResponse:
    """A bug in the explorer; the terminal has the traceback."""
    return _response(
        Problem(
            what=f"the explorer failed ({type(error).__name__})",
            where=request.url.path[:LONGEST],
            allowed="no request should make it fail",
            todo="please report what the terminal of 'attnscope serve' printed",
        ),
        500,
    )


async def _not_found(request: Request, error: Exception) -> Response:
    """An address outside the API belongs to the page, which shows the view or says that there is none."""
    assert isinstance(error, HTTPException)  # noqa: S101
    outside = not request.url.path.startswith(("/api/", "/static/")) and request.method in ("GET", "HEAD")
    if error.status_code == 404 and outside:
        return page()
    details = Problem(
        what=str(error.detail), where=request.url.path[:LONGEST], allowed="addresses of the explorer", todo="go back"
    )
    response = _response(details, error.status_code)
    response.headers.update(error.headers or {})
    return response


def _response(details: Problem, status: int) -> JSONResponse:
    return JSONResponse(details.model_dump(), status)
