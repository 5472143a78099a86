"""The command line: thin verbs over the public API. What a user can fix ends in one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any, NoReturn

import typer

from attnscope.cli import (
    audit,
    check,
    compare,
    confirm,
    figure,
    knockout,
    measure,
    models,
    new,
    plan,
    run,
    schema,
    serve,
)
from attnscope.cli.flags import speller
from attnscope.errors import AttnscopeError

UsageError: Any = typer.BadParameter.__base__  # typer has no public name for it

app = typer.Typer(
    name="attnscope",
    help="Measure where language models look: exactly, at nearly the cost of a plain forward pass.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command("measure")(measure.measure)
app.command("knockout")(knockout.knockout)
app.command("check")(check.check)
app.command("models")(models.models)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("confirm")(confirm.confirm)
app.command("tokens")(audit.tokens)
app.command("report")(run.report)
app.command("compare")(compare.compare)
app.command("figure")(figure.figure)
app.command("serve")(serve.serve)
app.command("export")(run.export)
app.command("new")(new.new)
app.command("schema")(schema.schema)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        print(f"attnscope {version('attnscope')}")  # noqa: T201
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())  # noqa: T201


class _StoppedError(Exception):
    """Ctrl-C."""


def _quiet(invoke: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Click prints an empty line when it sees Ctrl-C, so it gets to see another error."""

    def invoked(context: Any) -> Any:
        try:
            return invoke(context)
        except KeyboardInterrupt as error:
            raise _StoppedError from error

    return invoked


def main() -> None:
    """The command `attnscope`."""
    speak(app, "attnscope")


def speak(commands: typer.Typer, name: str) -> NoReturn:
    """Run a command; if it fails, say why in one line."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    command = typer.main.get_command(commands)
    command.invoke = _quiet(command.invoke)  # type: ignore[method-assign, assignment]
    try:
        code = command.main(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except AttnscopeError as error:
        code = _complain(name, error.message(speller(command, sys.argv[1:])))
    except (_StoppedError, typer.Abort, KeyboardInterrupt):
        code = _complain(name, "stopped", 130)
    except UsageError as error:
        code = _complain(name, _usage(error))
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code or 0)


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    verb = context.command_path if context else "attnscope"
    possible = getattr(error, "possibilities", None)
    near = f"near: {', '.join(possible)}" if possible else "--help lists its arguments and options"
    what = error.format_message().split("\n")[0].partition(" (Possible")[0].rstrip(".")
    return f"{what} ({verb}): {near}; run '{verb} --help'"


def _complain(name: str, line: str, code: int = 2) -> int:
    print(f"{name}: {line}", file=sys.stderr)  # noqa: T201
    return code
