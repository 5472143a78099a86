"""`attnscope serve`: runs in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnscope.cli import completion


def serve(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, finished or still being measured, or a folder that contains them.",
            autocompletion=completion.runs,
        ),
    ],
    host: Annotated[str, typer.Option(help="Listen here; unless it is loopback, the link contains a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="8765 by default, or any free port.")] = None,
    live: Annotated[
        str | None,
        typer.Option(
            help="Also measure prompts that you type in the browser, with this model.", autocompletion=completion.models
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Explore runs in the browser, without loading a model. Stop with Ctrl-C."""
    from attnscope.explorer.serve import serve as serve_runs

    def ready(address: str) -> None:
        print(f"attnscope explorer: {address}\nstop with Ctrl-C", flush=True)  # noqa: T201
        if browser:
            typer.launch(address)

    serve_runs(runs, host=host, port=port, live=live, ready=ready)
