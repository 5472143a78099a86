"""`attnscope run`, `report`, `export`: studies from the command line."""

from __future__ import annotations

import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.arguments import counted
from attnscope.cli import completion, options
from attnscope.cli.speech import say
from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    from attnscope.report.write import Reported
    from attnscope.runs.evidence import Level
    from attnscope.runs.manifest import Timings
    from attnscope.runs.perform import Outcome
    from attnscope.runs.request import RunRequest

WORTH_A_RATE = 1_000  # tokens; with fewer, most of the time is not spent on measuring
WIDTH = 80  # columns of a terminal that everything fits
StudyName = Annotated[
    str,
    typer.Argument(
        help="A bundled study (symbols, filler, filler-vs-sentence, ...) or a file.", autocompletion=completion.studies
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N prompts.")]
Models = Annotated[str | None, typer.Option(help="Only these models, by label: a,b.")]
Swap = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="LABEL=SOURCE replaces a model, repeatable; SOURCE alone if the study has only one.",
        autocompletion=completion.models,
    ),
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
    engine: Annotated[
        str,
        typer.Option(
            help="Where batches are measured: local, or an installed engine.", autocompletion=completion.engines
        ),
    ] = "local",
    evidence: options.Evidence = "full",
    quiet: options.Quiet = False,
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
        evidence=evidence,
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
    _perform(request, folder, command, quiet=quiet)


def _perform(request: RunRequest, folder: Path, command: str, *, quiet: bool) -> None:
    from attnscope.cli.progress import watching
    from attnscope.clock import Clock
    from attnscope.report.files import PAGE, changed_files, is_reported
    from attnscope.studies import perform_request, report_request

    clock = Clock()
    with watching(quiet=quiet) as watcher:
        try:
            outcome = perform_request(request, folder, watcher, clock=clock)
        except KeyboardInterrupt:
            watcher.say(_stopped(folder, command))
            raise
    if outcome.unchanged and is_reported(folder):
        if not quiet:
            print(f"nothing to do: {folder} is up to date ({counted(outcome.reused, 'cell')})")  # noqa: T201
    else:
        outcome.repaired += [f"{name} was missing, changed or damaged: written again" for name in changed_files(folder)]
        reported = report_request(folder, clock)
        _print_warnings(reported)
        if outcome.replaced is not None:
            print(f"attnscope: warning: {_replaced(outcome)}", file=sys.stderr)  # noqa: T201
        if not quiet:
            _summarise(outcome, reported)
            return
        if outcome.dropped:
            first = f"the first: {outcome.dropped[0].reason}"
            print(f"attnscope: warning: dropped {counted(len(outcome.dropped), 'cell')}; {first}", file=sys.stderr)  # noqa: T201
    print(folder / PAGE if quiet else f"report: {folder / PAGE}")  # noqa: T201


def _stopped(folder: Path, command: str) -> str:
    from attnscope.runs.shards import SHARDS

    if any((folder / SHARDS).glob("*.safetensors")):
        return f"what has been measured is in {folder}; continue with: {command}"
    return f"nothing has been measured yet; start again with: {command}"


def _replaced(outcome: Outcome) -> str:
    return (
        f"{outcome.folder} held the study '{outcome.replaced}'; its tables, figures and report are replaced, and what "
        "was measured for it is kept until a run with --forget"
    )


def _summarise(outcome: Outcome, reported: Reported) -> None:
    for line in outcome.repaired:
        print(f"repaired: {line}")  # noqa: T201
    print("\n".join(_measured(outcome, reported.timings, reported.evidence)))  # noqa: T201
    if outcome.dropped:
        print(f"dropped {counted(len(outcome.dropped), 'cell')}:")  # noqa: T201
        for each in outcome.dropped[:5]:
            print(f"  {each.model}, {each.condition}, prompt {each.prompt}: {each.reason}")  # noqa: T201
        if len(outcome.dropped) > 5:
            print(f"  and {len(outcome.dropped) - 5} more, in the manifest")  # noqa: T201
    for figure in reported.figures:
        print(f"figure {figure.name}: {reported.page.parent / 'figures' / figure.name}.{{svg,png,pdf,vl.json,csv,md}}")  # noqa: T201
    print(f"report: {reported.page}\n")  # noqa: T201
    say(reported.answer)


def _measured(outcome: Outcome, timings: Timings, level: Level) -> list[str]:
    """What was measured, what was there already, and where the time went, in lines that fit a terminal."""
    from attnscope.clock import duration, phases_in_words
    from attnscope.runs.evidence import FULL, LEVELS

    there = f"{'was' if outcome.reused == 1 else 'were'} there already"
    if outcome.measured:
        seconds = timings.phases.get("measuring", 0.0)
        rate = outcome.tokens >= WORTH_A_RATE and seconds
        speed = f", {outcome.tokens / seconds:,.0f} tokens per second" if rate else ""
        counts = f"measured {counted(outcome.measured, 'cell')} ({counted(outcome.tokens, 'token')}){speed}"
        counts += f"; {outcome.reused:,} {there}" if outcome.reused else ""
    else:
        counts = f"nothing to measure: {counted(outcome.reused, 'cell')} {there}"
    phases = phases_in_words(timings.phases)
    time = f"time: {duration(timings.seconds)}{f' ({phases})' if phases else ''}"
    lines = [counts, *textwrap.wrap(time, WIDTH, subsequent_indent="  ")]
    return lines if level == FULL else [*lines, f"evidence: {level} ({LEVELS[level]})"]


def _print_warnings(reported: Reported) -> None:
    for warning in reported.warnings:
        print(f"attnscope: warning: {warning}", file=sys.stderr)  # noqa: T201
    for name, why in reported.empty.items():
        print(f"attnscope: warning: class {name} has no token that the queries see: {why}", file=sys.stderr)  # noqa: T201
    for name, reason in reported.undrawn.items():
        print(f"attnscope: warning: figure {name} was not drawn: {reason}", file=sys.stderr)  # noqa: T201


def report(run: options.RunFolder, quiet: options.Quiet = False) -> None:
    """Redraw a run's figures and rewrite its report, without loading a model."""
    from attnscope.report.write import report_run

    reported = report_run(run)
    _print_warnings(reported)
    if quiet:
        print(reported.page)  # noqa: T201
        return
    print(f"{counted(len(reported.figures), 'figure')}; report: {reported.page}")  # noqa: T201


def export(
    run: options.RunFolder,
    table: Annotated[str, typer.Option(help="received (one row per head and query group) or views.")] = "received",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; RUN/exports/TABLE.parquet by default.")
    ] = None,
) -> None:
    """Write a run's large arrays as a Parquet table, to read them without attnscope."""
    from attnscope.analysis.run import Run

    print(f"wrote {Run(run).export(table, out)}")  # noqa: T201


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
