"""A run's folder: only one process writes to it at a time, and every file is written whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from attnscope.errors import AttnscopeError, Parameter
from attnscope.models.cache import let_read
from attnscope.places import writing, written_whole
from attnscope.runs.columns import EXPORTS
from attnscope.runs.integrity import DamagedError
from attnscope.runs.manifest import MANIFEST, STUDY, Manifest, OldFormatError, is_attnscopes, read_manifest
from attnscope.runs.shards import SHARDS, is_named_as_shard

LOCK = ".lock"
OLD_FILES = ("cells", "kept", "received.parquet", "views.parquet", "patterns.parquet")
"""Files of runs of earlier versions that this version does not write."""


class RunFolder:
    """Reads and writes one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the run."""
        is_new = not self.path.exists()
        with self._writable():
            self.path.mkdir(parents=True, exist_ok=True)
            foreign = any(self.path.iterdir()) and not self._is_run()
        if foreign:
            raise AttnscopeError(
                "this folder has files in it and is not a run",
                where=str(self.path),
                allowed="a new or empty folder, or a run",
                todo=("choose another with ", Parameter("out")),
            )
        lock = FileLock(self.path / LOCK, timeout=0)
        try:
            with self._writable():
                lock.acquire()
        except Timeout as error:
            raise AttnscopeError(
                "another process is writing to this run",
                where=str(self.path),
                allowed="one writer at a time",
                todo=("wait for it, or choose another folder with ", Parameter("out")),
            ) from error
        try:
            with self._writable():
                for leftover in list(self.path.rglob(".*.partial*")):
                    _remove(leftover)
            yield
        finally:
            if is_new:
                self._remove_if_unused()
            lock.release()

    def _remove_if_unused(self) -> None:
        """Leave nothing behind if nothing was written, as where a study can't be run."""
        with suppress(OSError):
            if [each.name for each in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink()
                self.path.rmdir()

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except Timeout:  # of the lock, which counts as an OSError
            raise
        except OSError as error:
            raise AttnscopeError(
                f"can't write into the run's folder: {error.strerror or error}",
                where=str(self.path),
                allowed="a folder you can write to",
                todo=("choose another with ", Parameter("out")),
            ) from error

    def _is_run(self) -> bool:
        """Whether attnscope created this folder; many programs write a manifest.json."""
        if any(is_named_as_shard(each) for each in (self.path / SHARDS).glob("*")):
            return True
        path = self.path / MANIFEST
        if not path.exists():
            return self.is_empty
        try:
            return is_attnscopes(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written into it."""
        return all(each.name == LOCK for each in self.path.iterdir())

    def clear(self) -> None:
        """Remove what a run writes before it has numbers; for a folder that was empty before it."""
        for name in (MANIFEST, STUDY, SHARDS):
            _remove(self.path / name)

    def manifest(self) -> tuple[Manifest | None, str | None]:
        """The run's manifest, if it can be used; otherwise the reason why it has to be written again."""
        try:
            return read_manifest(self.path), None
        except OldFormatError as error:
            return None, f"{error.what}: everything is measured again"
        except DamagedError:
            return None, f"{MANIFEST} was changed or damaged: written again"

    def remove_exports(self) -> None:
        """Remove exports of tables that are about to be rewritten."""
        for name in EXPORTS:
            (self.path / "exports" / f"{name}.parquet").unlink(missing_ok=True)

    def remove_old_files(self) -> None:
        """Remove what an earlier version wrote and this one does not read."""
        for name in OLD_FILES:
            _remove(self.path / name)

    def write_manifest(self, manifest: Manifest) -> None:
        self.write(MANIFEST, lambda path: path.write_text(manifest.text(), encoding="utf-8"))

    def write_study(self, text: str) -> None:
        self.write(STUDY, lambda path: path.write_text(text, encoding="utf-8"))

    def write(self, name: str, writer: Callable[[Path], object]) -> None:
        """Write a file under a temporary name, then move it into place."""
        path = self.path / name
        with writing(path, "the run"):
            path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path, "the run") as partial:
            writer(partial)
            let_read(partial)


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
