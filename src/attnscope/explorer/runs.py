"""The runs that are served, by name. Nothing else on the disk can be requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

import polars as pl
import pyarrow as pa

from attnscope.analysis.run import ChangedError, Run
from attnscope.errors import AttnscopeError, near

T = TypeVar("T")
RESERVED = ("api", "static", "try")  # first parts of addresses that are not runs
ATTEMPTS, PAUSE = 5, 0.2  # while a run is being written, its files don't all change at the same moment


class UnknownRunError(AttnscopeError):
    """No run of that name is served."""


class ServedRuns:
    """Opens runs when they are asked for, and again when they have changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = _unique_names(paths)
        self._opened: dict[str, tuple[tuple[int, ...], Run]] = {}
        self._lock = Lock()
        self.ready = Event()
        """Requests wait for it: some libraries must not be used while another thread is still importing them."""
        self.ready.set()

    @property
    def names(self) -> list[str]:
        return list(self._paths)

    def add(self, name: str, path: Path) -> str:
        """Serve one more run; returns its name, numbered if the one you want is taken."""
        free = _free_name(name, self._paths)
        self._paths[free] = path
        return free

    def remove(self, name: str) -> None:
        with self._lock:
            self._paths.pop(name, None)
            self._opened.pop(name, None)

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
        """The run in its current state."""
        path = self.path(name)
        with self._lock:
            state = _state(path)
            opened = self._opened.get(name)
            if opened is None or opened[0] != state:
                with _damage_explained(name):
                    opened = (state, Run(path, unfinished=True))
                self._opened[name] = opened
            return opened[1]

    def read(self, name: str, view: Callable[[Run], T]) -> T:
        """What a view shows of a run; computed again if the run changed in the meantime."""
        self.ready.wait()
        for attempt in range(ATTEMPTS):
            try:
                with _damage_explained(name):
                    return view(self.open(name))
            except UnknownRunError:
                raise
            except ChangedError:
                if attempt == ATTEMPTS - 1:
                    raise
            except AttnscopeError:
                if attempt == ATTEMPTS - 1 or not self._is_being_written(name):
                    raise
            with self._lock:
                self._opened.pop(name, None)
            time.sleep(PAUSE)
        raise AssertionError

    def _is_being_written(self, name: str) -> bool:
        """Whether the files have changed since the run was opened."""
        opened = self._opened.get(name)
        return opened is None or opened[0] != _state(self.path(name))


@contextmanager
def _damage_explained(name: str) -> Iterator[None]:
    """Turn what libraries raise on a damaged file into an error in four parts."""
    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, KeyError) as error:
        raise AttnscopeError(
            f"a file of this run can't be read ({type(error).__name__})",
            where=name,
            allowed="a run as 'attnscope run' wrote it",
            todo="repeat the same 'attnscope run'",
        ) from error


def _state(path: Path) -> tuple[int, ...]:
    """Changes when the run does."""
    files = [path / "manifest.json", path / "prompts.parquet"]
    return tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files)


def _unique_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Each run under its folder's name, numbered where two are the same."""
    named: dict[str, Path] = {}
    for path in paths:
        resolved = path.resolve()
        if resolved not in named.values():
            name = f"{resolved.name}-run" if resolved.name in ("", *RESERVED) else resolved.name
            named[_free_name(name, named)] = resolved
    return named


def _free_name(name: str, taken: Container[str]) -> str:
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
