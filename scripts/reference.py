"""Writes the reference pages that are made from the code; a test says when they are stale."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from attnscope.cli.main import app

DOCS = Path(__file__).resolve().parent.parent / "docs"


def pages() -> dict[Path, str]:
    """Every generated page, by its path."""
    return {DOCS / "cli.md": "\n".join(_cli()) + "\n"}


def _cli() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "Made from the commands themselves by `make docs`. Exit codes: 0 done, 2 something to mend (told in one line"
    yield "on standard error), 130 stopped with Ctrl-C."
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="attnscope")
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        yield f"\n## attnscope {name}\n"
        yield (command.help or "").strip()
        yield "\n| option | meaning | default |\n|---|---|---|"
        for parameter in command.params:
            if parameter.name != "help":
                yield _row(parameter)


def _row(parameter: object) -> str:
    names = getattr(parameter, "opts", [])
    is_argument = getattr(parameter, "param_type_name", "") == "argument"
    shown = f"`{str(getattr(parameter, 'name', '')).upper()}`" if is_argument else f"`{', '.join(names)}`"
    default = getattr(parameter, "default", None)
    told = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
    return f"| {shown} | {getattr(parameter, 'help', '') or ''} | {told} |".replace("|  |", "| |")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")  # noqa: T201
