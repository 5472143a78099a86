"""`attnscope run`, `report`, `new`: studies from the command line."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.arguments import counted
from attnscope.cli import options
from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    from attnscope.report.write import Reported
    from attnscope.runs.perform import Outcome
    from attnscope.runs.request import RunRequest

WORTH_A_RATE = 1_000  # tokens; with fewer, most of the time is not spent on measuring
StudyName = Annotated[str, typer.Argument(help="A bundled study (symbols, filler, filler-vs-sentence, ...) or a file.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N prompts.")]
Models = Annotated[str | None, typer.Option(help="Only these models, by label: a,b.")]
Swap = Annotated[
    list[str] | None,
    typer.Option("--model", help="LABEL=SOURCE replaces a model, repeatable; SOURCE alone if the study has only one."),
]


def run(
    study: StudyName,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/NAME by default.")] = None,
    limit: Limit = None,
    models: Models = None,
    swap: Swap = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print cells, tokens, time, disk space and what could be found.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop if any prompt can't be measured.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove what was measured for other versions of the study.")
    ] = False,
    engine: Annotated[str, typer.Option(help="Where batches are measured: local, or an installed engine.")] = "local",
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Run a study: measure, write tables, draw figures, write the report. Run it again to continue where it stopped."""
    from attnscope.studies import default_folder, request_study

    command = shlex.join(["attnscope", *sys.argv[1:]])
    request = request_study(
        study,
        limit=limit,
        models=labels(models),
        swaps=swaps(swap),
        instead=instead(swap),
        strict=strict,
        forget=forget,
        command=command,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        engine=engine,
    )
    folder = default_folder(study) if out is None else out
    if dry_run:
        from attnscope.cli.audit import show_estimate
        from attnscope.cli.plan import show_plan
        from attnscope.study.independence import dependence

        show_estimate(request)
        show_plan(request)
        prompts = request.prompts.prompts
        clusters = [prompt.cluster for prompt in prompts]
        copies = dependence(request.study.prompts, [prompt.texts for prompt in prompts], clusters)
        if copies:
            print(f"attnscope: warning: {copies}", file=sys.stderr)  # noqa: T201
        return
    _perform(request, folder, command)


def _perform(request: RunRequest, folder: Path, command: str) -> None:
    from attnscope.cli.progress import Bar
    from attnscope.report.files import changed_files, is_reported
    from attnscope.report.write import report_run
    from attnscope.studies import perform_request

    with Bar() as bar:
        try:
            outcome = perform_request(request, folder, bar)
        except KeyboardInterrupt:
            bar.say(_stopped(folder, command))
            raise
    if outcome.unchanged and is_reported(folder):
        print(f"nothing to do: {folder} is up to date ({counted(outcome.reused, 'cell')})")  # noqa: T201
        print(f"report: {folder / 'report.html'}")  # noqa: T201
        return
    outcome.repaired += [f"{name} was missing, changed or damaged: written again" for name in changed_files(folder)]
    _summarise(outcome, report_run(folder))


def _stopped(folder: Path, command: str) -> str:
    from attnscope.runs.shards import SHARDS

    if any((folder / SHARDS).glob("*.safetensors")):
        return f"what has been measured is in {folder}; continue with: {command}"
    return f"nothing has been measured yet; start again with: {command}"


def _summarise(outcome: Outcome, reported: Reported) -> None:
    for line in outcome.repaired:
        print(f"repaired: {line}")  # noqa: T201
    print(_measured(outcome))  # noqa: T201
    if outcome.dropped:
        print(f"dropped {counted(len(outcome.dropped), 'cell')}:")  # noqa: T201
        for each in outcome.dropped[:5]:
            print(f"  {each.model}, {each.condition}, prompt {each.prompt}: {each.reason}")  # noqa: T201
        if len(outcome.dropped) > 5:
            print(f"  and {len(outcome.dropped) - 5} more, in the manifest")  # noqa: T201
    for figure in reported.figures:
        print(f"figure {figure.name}: {reported.page.parent / 'figures' / figure.name}.{{svg,png,pdf,vl.json,csv,md}}")  # noqa: T201
    _print_warnings(reported)
    print(f"report: {reported.page}\n")  # noqa: T201
    print("\n".join(reported.answer))  # noqa: T201


def _measured(outcome: Outcome) -> str:
    """What was measured and what was there already, in words."""
    there = f"{'was' if outcome.reused == 1 else 'were'} there already"
    if not outcome.measured:
        return (
            f"nothing to measure: {counted(outcome.reused, 'cell')} {there}; tables written in {outcome.seconds:.0f} s"
        )
    speed = ""
    if outcome.tokens >= WORTH_A_RATE and outcome.seconds:
        speed = f", {outcome.tokens / outcome.seconds:,.0f} tokens per second"
    cells, tokens = counted(outcome.measured, "cell"), counted(outcome.tokens, "token")
    counts = f"measured {cells} ({tokens}) in {outcome.seconds:.0f} s{speed}"
    return f"{counts}; {outcome.reused:,} {there}" if outcome.reused else counts


def _print_warnings(reported: Reported) -> None:
    for warning in reported.warnings:
        print(f"attnscope: warning: {warning}", file=sys.stderr)  # noqa: T201
    for name in reported.empty:
        why = "its rule matches nothing, or only tokens of earlier classes"
        print(f"class {name} has no token that the queries see: {why}")  # noqa: T201
    for name, reason in reported.undrawn.items():
        print(f"figure {name} was not drawn: {reason}")  # noqa: T201


def report(run: Annotated[Path, typer.Argument(help="A run's folder.")]) -> None:
    """Redraw a run's figures and rewrite its report, without loading a model."""
    from attnscope.report.write import report_run

    reported = report_run(run)
    _print_warnings(reported)
    print(f"{counted(len(reported.figures), 'figure')}; report: {reported.page}")  # noqa: T201


def export(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    table: Annotated[str, typer.Option(help="received (one row per head and query group) or views.")] = "received",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; RUN/exports/TABLE.parquet by default.")
    ] = None,
) -> None:
    """Write a run's large arrays as a Parquet table, to read them without attnscope."""
    from attnscope.analysis.run import Run

    print(f"wrote {Run(run).export(table, out)}")  # noqa: T201


def new(file: Annotated[Path, typer.Argument(help="The study file to write.")]) -> None:
    """Write a commented study file to start from."""
    from importlib.resources import files

    from attnscope.places import written_whole

    if os.path.lexists(file):
        raise AttnscopeError(
            "the file exists already", where=str(file), allowed="a new file", todo="choose another name"
        )
    with written_whole(file, "the study file") as partial:
        partial.write_text((files("attnscope.study") / "start.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    print(f"wrote {file}; run it with: attnscope run {file}")  # noqa: T201


def labels(text: str | None) -> list[str]:
    return [label.strip() for label in (text or "").split(",") if label.strip()]


def swaps(given: list[str] | None) -> dict[str, str]:
    """`["LABEL=SOURCE"]` -> `{LABEL: SOURCE}`."""
    sources = {}
    for each in given or ():
        label, equals, source = each.partition("=")
        if not equals:
            continue  # see `instead`
        if not label or not source:
            raise AttnscopeError(
                f"can't read '{each}'",
                where="--model",
                allowed="LABEL=SOURCE, or SOURCE alone",
                todo="write it as in Qwen-Phys=folder",
            )
        sources[label] = source
    return sources


def instead(given: list[str] | None) -> str | None:
    """The source given without a label, if there is one."""
    alone = [each for each in given or () if "=" not in each]
    if len(alone) > 1 or (alone and len(given or ()) > 1):
        raise AttnscopeError(
            "there are several models, not all with a label",
            where=f"--model {alone[0]}",
            allowed="LABEL=SOURCE for each, or one SOURCE alone",
            todo="say which model of the study each replaces",
        )
    return alone[0] if alone else None
