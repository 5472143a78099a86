"""`attnscope new`: a study file to start from."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from attnscope.cli import completion
from attnscope.errors import AttnscopeError, near


def new(
    file: Annotated[Path, typer.Argument(help="The study file to write.")],
    source: Annotated[
        str | None,
        typer.Option("--from", help="A bundled study to copy, with its comments.", autocompletion=completion.bundled),
    ] = None,
) -> None:
    """Write a study file to start from: one that explains every part, or a copy of a bundled study."""
    from attnscope.places import written_whole

    copied = Path(str(files("attnscope.study") / "start.yaml")) if source is None else _bundled(source)
    beside = [] if source is None else _files_of(copied)
    copies = {file: copied, **{file.parent / path.relative_to(copied.parent): path for path in beside}}
    for target in copies:
        if os.path.lexists(target):
            raise AttnscopeError(
                "the file exists already", where=str(target), allowed="a new file", todo="choose another name or folder"
            )
    for target, path in copies.items():
        with written_whole(target, "the study file") as partial:
            partial.write_bytes(path.read_bytes())
    others = "".join(f" and {target}" for target in list(copies)[1:])
    print(f"wrote {file}{others}; run it with: attnscope run {file}")  # noqa: T201


def _bundled(name: str) -> Path:
    from attnscope.study.file import bundled_studies

    known = bundled_studies()
    if name not in known:
        close = near(name, known)
        raise AttnscopeError(
            f"there is no bundled study '{name}'",
            where="--from",
            allowed=close if close.startswith("known") else f"{close}; there are {', '.join(known)}",
            todo="use one of these, or leave it out for a study that explains every part",
        )
    return known[name]


def _files_of(study: Path) -> list[Path]:
    """The files beside a study that it needs: its prompts, if they are in one."""
    from attnscope.study.file import read_study

    prompts = read_study(study).prompts.file
    return [] if prompts is None else [study.parent / prompts]
