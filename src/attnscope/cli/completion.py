"""What the shell completes: bundled studies, built-in models, runs, kinds of figure, levels of evidence.

Shells ask each time Tab is pressed, so nothing here loads a model library or reads more than a folder's listing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def studies(incomplete: str) -> list[str]:
    """Bundled studies and study files."""
    return [*bundled(incomplete), *_paths(incomplete, lambda path: path.suffix in (".yaml", ".yml"))]


def bundled(incomplete: str) -> list[str]:
    from attnscope.study.file import bundled_studies

    return _beginning(incomplete, bundled_studies())


def models(incomplete: str) -> list[str]:
    """Built-in models, .gguf files and folders; after LABEL= too."""
    from attnscope.models.builtin import BUILTINS

    label, equals, source = incomplete.rpartition("=")
    known = [*_beginning(source, BUILTINS), *_paths(source, lambda path: path.suffix == ".gguf")]
    return [f"{label}{equals}{each}" for each in known]


def runs(incomplete: str) -> list[str]:
    """Folders of runs, and folders on the way to them."""
    found = _paths(incomplete, lambda _: False)
    return [each.rstrip("/") if (Path(each).expanduser() / "manifest.json").is_file() else each for each in found]


def kinds(incomplete: str) -> list[str]:
    from attnscope.figures import KINDS

    return _beginning(incomplete, KINDS.members)


def levels(incomplete: str) -> list[tuple[str, str]]:
    from attnscope.runs.evidence import LEVELS

    return [(level, meaning) for level, meaning in LEVELS.items() if level.startswith(incomplete)]


def engines(incomplete: str) -> list[str]:
    from attnscope.runs.engines import ENGINES

    return _beginning(incomplete, ENGINES.members)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _paths(incomplete: str, wanted: Callable[[Path], bool]) -> list[str]:
    """Files that are wanted, and folders with a slash at the end; hidden ones only if asked for."""
    folder, name = os.path.split(incomplete)
    return sorted(_entries(Path(folder or ".").expanduser(), folder, name, wanted))


def _entries(place: Path, folder: str, name: str, wanted: Callable[[Path], bool]) -> Iterator[str]:
    try:
        entries = list(place.iterdir())
    except OSError:
        return
    for entry in entries:
        hidden = entry.name.startswith(".") and not name.startswith(".")
        if not entry.name.startswith(name) or hidden:
            continue
        shown = os.path.join(folder, entry.name)
        if entry.is_dir():
            yield f"{shown}/"
        elif wanted(entry):
            yield shown
