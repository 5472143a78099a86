"""The API's addresses. Each asks one view; views are imported when first used, so that the server starts at once."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any, Literal, get_args

from fastapi import FastAPI, Path, Query
from fastapi.responses import Response

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.explorer import responses
from attnscope.explorer.failures import problem
from attnscope.explorer.live import Trial, TrialQueue, TrialStatus
from attnscope.explorer.pages import MEDIA_TYPES
from attnscope.explorer.runs import ServedRuns
from attnscope.study.schema import FigureSpec

RunName = Annotated[str, Path(description="A run's name, as in the list of runs.", max_length=300)]
Model = Annotated[str, Query(description="A model's label.", max_length=500)]
Condition = Annotated[str, Query(description="A condition's name.", max_length=500)]
Queries = Annotated[str, Query(description="A query group.", max_length=500)]
Number = Annotated[int, Query(ge=0, le=1_000_000)]
OptionalNumber = Annotated[int | None, Query(ge=0, le=1_000_000)]
Width = Annotated[int | None, Query(ge=200, le=4000, description="Width in pixels, if the page shows the caption.")]
Ending = Literal[".svg", ".png", ".pdf", ".csv", ".md", ".vl.json"]


def add_runs(app: FastAPI, runs: ServedRuns, live: str | None) -> None:
    """live: the model that measures prompts typed in the browser."""

    @app.get("/api/runs")
    def run_list() -> responses.RunList:
        """The runs that are served."""
        entries = [_entry(runs, name) for name in runs.names]
        return responses.RunList(runs=entries, live=live, version=version("attnscope"))

    @app.get("/api/runs/{run}")
    def run_facts(run: RunName) -> responses.RunFacts:
        """What a run has: models, conditions, classes, measures, figures, dropped prompts."""

        def view(opened: Run) -> responses.RunFacts:
            from attnscope.explorer.views import overview

            return overview.run_facts(run, opened)

        return runs.read(run, view)

    @app.get("/api/runs/{run}/evidence")
    def evidence(run: RunName) -> list[responses.Section]:
        """The evidence that the run's numbers are right."""

        def view(opened: Run) -> list[responses.Section]:
            from attnscope.explorer.views import overview

            return overview.evidence(opened)

        return runs.read(run, view)

    @app.get("/api/runs/{run}/comparisons")
    def comparisons(run: RunName) -> list[responses.ComparisonTables]:
        """What differs between the run's conditions and models."""

        def view(opened: Run) -> list[responses.ComparisonTables]:
            from attnscope.explorer.views import overview

            return overview.comparisons(opened)

        return runs.read(run, view)


def add_figures(app: FastAPI, runs: ServedRuns) -> None:
    @app.post("/api/runs/{run}/figure")
    def figure(run: RunName, spec: FigureSpec, width: Width = None) -> responses.Figure:
        """A figure as a study file describes it, for a screen."""

        def view(opened: Run) -> responses.Figure:
            from attnscope.explorer.views import figure

            return figure.figure(opened, spec, width)

        return runs.read(run, view)

    @app.post("/api/runs/{run}/figure/file", response_class=Response, responses={200: {"content": _file_types()}})
    def figure_file(run: RunName, spec: FigureSpec, ending: Ending = ".svg") -> Response:
        """The same figure as a file."""

        def view(opened: Run) -> bytes:
            from attnscope.explorer.views import figure

            return figure.figure_file(opened, spec, ending)

        content = runs.read(run, view)
        name = spec.name.encode("ascii", "replace").decode().replace("?", "_")
        disposition = {"content-disposition": f'attachment; filename="{name}{ending}"'}
        return Response(content, media_type=MEDIA_TYPES[ending], headers=disposition)


def add_prompts(app: FastAPI, runs: ServedRuns) -> None:
    @app.get("/api/runs/{run}/prompts")
    def prompts(run: RunName, find: Annotated[str, Query(max_length=200)] = "") -> responses.PromptMatches:
        """The run's prompts, or those that match some words."""

        def view(opened: Run) -> responses.PromptMatches:
            from attnscope.explorer.views.search import find_prompts

            return find_prompts(opened, find)

        return runs.read(run, view)

    @app.get("/api/runs/{run}/prompt")
    def prompt(
        run: RunName,
        prompt: Number,
        model: Model,
        condition: Condition,
        queries: Queries,
        layer: OptionalNumber = None,
        head: OptionalNumber = None,
        over: Literal["visible", "all"] = "visible",
        first: Number = 0,
    ) -> responses.PromptText:
        """A prompt's text, token by token, with the attention each token receives."""

        def view(opened: Run) -> responses.PromptText:
            from attnscope.explorer.views.prompt import PromptChoice, prompt_text

            return prompt_text(opened, PromptChoice(prompt, model, condition, queries, layer, head, over, first))

        return runs.read(run, view)


def add_heads(app: FastAPI, runs: ServedRuns) -> None:
    @app.get("/api/runs/{run}/head")
    def head(run: RunName, model: Model, layer: Number, head: Number, queries: Queries) -> responses.HeadFacts:
        """What kind of head it is, and its rank among all heads."""

        def view(opened: Run) -> responses.HeadFacts:
            from attnscope.explorer.views.choices import HeadChoice
            from attnscope.explorer.views.head import head_facts

            return head_facts(opened, HeadChoice(model, layer, head, queries))

        return runs.read(run, view)

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

        def view(opened: Run) -> responses.Pair:
            from attnscope.explorer.views.choices import HeadChoice
            from attnscope.explorer.views.compare import HeadSide, pair

            left = HeadSide(HeadChoice(left_model, left_layer, left_head, queries), left_condition)
            right = HeadSide(HeadChoice(right_model, right_layer, right_head, queries), right_condition)
            return pair(opened, left, right)

        return runs.read(run, view)


def add_trials(app: FastAPI, queue: TrialQueue) -> None:
    @app.post("/api/trials")
    def submit(trial: Trial) -> TrialStatus:
        """Measure a prompt, once the trials before it are done."""
        return queue.submit(trial)

    @app.get("/api/trials/{number}")
    def status(number: Annotated[int, Path(ge=1, le=1_000_000)]) -> TrialStatus:
        """How far a trial has got."""
        return queue.status(number)


def _file_types() -> dict[str, Any]:
    return {MEDIA_TYPES[ending].partition(";")[0]: {} for ending in get_args(Ending)}


def _entry(runs: ServedRuns, name: str) -> responses.RunEntry:
    try:
        run = runs.open(name)
    except AttnscopeError as error:
        return responses.RunEntry(name=name, title=name, status="unreadable", problem=problem(error, runs))
    return responses.RunEntry(name=name, title=run.study.title or name, question=run.study.question, status=run.status)
