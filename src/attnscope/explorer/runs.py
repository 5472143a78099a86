"""The runs that are shown, by name. Nothing else on the disk can be asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

import polars as pl
import pyarrow as pa

from attnscope.analysis.run import ChangedError, Run
from attnscope.errors import AttnscopeError, near

T = TypeVar("T")
TAKEN = ("api", "static", "try")  # addresses that are no run's
TRIES, PAUSE = 5, 0.2  # while a run is being written, its files change together, but not at once


class UnknownRunError(AttnscopeError):
    """No run of that name is shown."""


class Shelf:
    """Opens runs when they are asked for, and again when they have changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = _named(paths)
        self._runs: dict[str, tuple[tuple[int, ...], Run]] = {}
        self._lock = Lock()
        self.ready = Event()
        """Questions wait for it: some libraries must not be used while another thread still loads them."""
        self.ready.set()

    @property
    def names(self) -> list[str]:
        return list(self._paths)

    def add(self, name: str, path: Path) -> str:
        """One more run; the name it got, for there may be one of that name."""
        free, turn = name, 1
        while free in self._paths:
            turn += 1
            free = f"{name}-{turn}"
        self._paths[free] = path
        return free

    def remove(self, name: str) -> None:
        with self._lock:
            self._paths.pop(name, None)
            self._runs.pop(name, None)

    def path(self, name: str) -> Path:
        if name not in self._paths:
            raise UnknownRunError(
                f"there is no run '{name[:80]}' here",
                where="the address",
                allowed=near(name[:80], self._paths),
                todo="choose one of these",
            )
        return self._paths[name]

    def open(self, name: str) -> Run:
        """The run as it is now."""
        path = self.path(name)
        with self._lock:
            state = _state(path)
            held = self._runs.get(name)
            if held is None or held[0] != state:
                with _readable(name):
                    held = (state, Run(path, unfinished=True))
                self._runs[name] = held
            return held[1]

    def ask(self, name: str, question: Callable[[Run], T]) -> T:
        """An answer from a run; asked again if the run changed meanwhile."""
        self.ready.wait()
        for turn in range(TRIES):
            try:
                with _readable(name):
                    return question(self.open(name))
            except UnknownRunError:
                raise
            except ChangedError:
                if turn == TRIES - 1:
                    raise
            except AttnscopeError:
                if turn == TRIES - 1 or not self._is_being_written(name):
                    raise
            with self._lock:
                self._runs.pop(name, None)
            time.sleep(PAUSE)
        raise AssertionError

    def _is_being_written(self, name: str) -> bool:
        """Whether the run's tables and its manifest are of different moments."""
        held = self._runs.get(name)
        return held is None or held[0] != _state(self.path(name))


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """What a damaged file makes libraries say, told in four parts."""
    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, KeyError) as error:
        raise AttnscopeError(
            f"a file of this run can't be read ({type(error).__name__})",
            where=name,
            allowed="a run as 'attnscope run' wrote it",
            todo="give the same 'attnscope run' again",
        ) from error


def _state(path: Path) -> tuple[int, ...]:
    """Changes when the run does."""
    files = [path / "manifest.json", path / "prompts.parquet"]
    return tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files)


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    """By folder name; where two have the same, by a number too."""
    found: dict[str, Path] = {}
    for path in paths:
        resolved = path.resolve()
        if resolved in found.values():
            continue
        base = f"{resolved.name}-run" if resolved.name in ("", *TAKEN) else resolved.name
        name, turn = base, 1
        while name in found:
            turn += 1
            name = f"{base}-{turn}"
        found[name] = resolved
    return found
