"""The explorer as a web app: `/api/...` responds with data, every other address with the page."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from attnscope.explorer import routes
from attnscope.explorer.failures import add_handlers
from attnscope.explorer.live import TrialQueue
from attnscope.explorer.pages import add_static
from attnscope.explorer.responses import Problem
from attnscope.explorer.runs import ServedRuns

AT_ONCE = max(2, os.cpu_count() or 1)  # requests
FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is not JSON."},
    404: {"model": Problem, "description": "There is no such run."},
    409: {"model": Problem, "description": "The run doesn't have what was asked for, or can't show it this way."},
    422: {"model": Problem, "description": "The request is not valid."},
}


def make_app(runs: ServedRuns, trials: TrialQueue | None = None) -> FastAPI:
    """trials: measures prompts typed in the browser, if that is allowed."""
    app = FastAPI(
        title="attnscope explorer",
        version=version("attnscope"),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=FAILURES,
        lifespan=_few_at_once,
    )
    add_handlers(app, runs)
    routes.add_runs(app, runs, None if trials is None else trials.model)
    routes.add_figures(app, runs)
    routes.add_prompts(app, runs)
    routes.add_heads(app, runs)
    if trials is not None:
        routes.add_trials(app, trials)
    add_static(app)
    return app


@asynccontextmanager
async def _few_at_once(app: FastAPI) -> AsyncIterator[None]:
    """More requests at a time than cores would only make all of them slower."""
    current_default_thread_limiter().total_tokens = AT_ONCE
    yield
