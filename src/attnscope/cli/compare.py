"""`attnscope compare`: what differs between conditions and models of a run, or between two runs, with statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.cli import completion, options
from attnscope.cli.speech import say
from attnscope.errors import AttnscopeError, near

if TYPE_CHECKING:
    from attnscope.analysis.compared import Compared
    from attnscope.analysis.run import Run


def compare(
    run: options.RunFolder,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN2]", help="Another run, different in one respect only.", autocompletion=completion.runs
        ),
    ] = None,
    queries: Annotated[str | None, typer.Option(help="The query group to print; the study's first by default.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the tables; RUN/comparisons by default.")
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Compare conditions and models of a run, or two runs, paired by prompt, with intervals and tests."""
    from attnscope.analysis.run import Run
    from attnscope.report.comparisons import write_comparisons
    from attnscope.report.effects import write_effects

    first = Run(run)
    group = _group(first, queries)
    comparisons = first.compare(None if other is None else Run(other))
    if not comparisons and (other is not None or not first.has_outcomes):
        raise AttnscopeError(
            "there is nothing to compare in this run",
            where=str(run),
            allowed="two models, two conditions, or interventions",
            todo="add one to the study, or give a second run",
        )
    folder = out or (run / ("comparisons" if other is None else f"comparisons-with-{other.resolve().name}"))
    written = write_comparisons(comparisons, folder) if comparisons else []  # before printing: a pipe may be closed
    effects = write_effects(first, folder) if other is None else None
    written += [effects] if effects is not None else []
    if quiet:
        print("\n".join(map(str, written)))  # noqa: T201
        return
    if other is None:
        from attnscope.report.answer import answer

        say(answer(first))
    for each in comparisons:
        _show(each, group)
    for path in written:
        print(f"wrote {path}")  # noqa: T201
    if not comparisons:
        return
    others = "" if queries or len(first.queries) == 1 else "other query groups, "
    print(f"{others}enrichment, dilution and every head: {folder}; all on a page: {folder / 'comparisons.md'}")  # noqa: T201


def _group(run: Run, queries: str | None) -> str:
    known = run.queries
    if queries is not None and queries not in known:
        raise AttnscopeError(
            f"query group '{queries}' was not measured",
            where="--queries",
            allowed=near(queries, known),
            todo="use one of these",
        )
    return queries or known[0]


def _show(compared: Compared, queries: str) -> None:
    from rich.console import Console
    from rich.text import Text

    from attnscope.cli.grid import Column, print_grid, text
    from attnscope.report.comparison_tables import facts, summary

    console = Console()
    console.print(Text(f"\n{compared.comparison.name}", style="bold"))
    say(facts(compared))
    for sheet in summary(compared, queries):
        columns = [*text("class"), *(Column(name, wraps=name.startswith("head")) for name in sheet.columns[1:])]
        print_grid(console, f"{queries}: {sheet.title}", columns, sheet.rows, sheet.grayed)
