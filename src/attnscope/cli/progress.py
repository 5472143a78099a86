"""Progress of long work: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from attnscope.runs.watcher import Watcher

EVERY = 15.0  # seconds between lines, without a terminal


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Watcher]:
    """Shows progress inside; with quiet, nothing is shown, not even that a model is being downloaded."""
    from attnscope.models.narration import silenced
    from attnscope.runs.watcher import Silent

    if quiet:
        with silenced():
            yield Silent()
    else:
        with Bar() as bar:
            yield bar


class Bar:
    """A watcher (see runs.perform) that prints to standard error."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._what, self._total, self._done = "", 0, 0
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> Bar:
        if not self._progress.disable:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._progress.disable:  # it would print an empty line
            self._progress.stop()

    def begin(self, what: str, tokens: int) -> None:
        self._what, self._total, self._done = what, tokens, 0
        self._began = self._last_line = time.monotonic()
        self._task = self._progress.add_task(escape(what), total=tokens)

    def advance(self, tokens: int) -> None:
        self._done += tokens
        if self._task is not None:
            self._progress.update(self._task, completed=self._done)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= EVERY and self._done < self._total:
            left = (now - self._began) * (self._total - self._done) / max(1, self._done)
            self.say(f"{self._what}: {100 * self._done // self._total} %, about {left:.0f} s left")
            self._last_line = now

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
