"""Where prepared models are stored. A model is stored completely or not at all.

A model is prepared in a temporary folder and moved into place in one step, under a lock. The marker file inside lists
every file with its size and SHA-256; a folder without a matching marker file is not a model.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from attnscope.errors import AttnscopeError
from attnscope.models.narration import step
from attnscope.places import cache_folder

MARKER = "attnscope.json"
CONVERSION = "float32 safetensors 3"  # raise the number when converted models must be converted again


def place(name: str) -> Path:
    """Where the prepared model of this name is, or will be."""
    return cache_folder() / "models" / name


def is_whole(folder: Path, origin: str) -> bool:
    """Whether the folder holds a finished model from this exact origin, with every file at its full size."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        files: dict[str, dict[str, int]] = marker["files"]
        return (
            bool(files)
            and marker["origin"] == origin
            and all((folder / name).stat().st_size == file["bytes"] for name, file in files.items())
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def recorded_hashes(folder: Path) -> dict[str, str] | None:
    """SHA-256 by file name as recorded when the folder was published; None if it wasn't."""
    try:
        files = json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"]
        return {name: str(file["sha256"]) for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def prepared(name: str, origin: str, fill: Callable[[Path], None]) -> Path:
    """The folder of a prepared model; if it is missing or incomplete, `fill` writes it into an empty folder.

    origin: what the model is made from. If it changes, the model is prepared again.
    """
    target = place(name)
    if is_whole(target, origin):
        return target
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target):
            if is_whole(target, origin):
                return target
            _clear_leftovers(target)
            workshop = Path(tempfile.mkdtemp(prefix=f".{name}.preparing-", dir=target.parent))
            try:
                filled = workshop / "model"
                filled.mkdir()
                fill(filled)
                _write_marker(filled, origin)
                if target.exists():
                    os.replace(target, workshop / "replaced")
                os.replace(filled, target)
                _sync(target.parent)
            finally:
                shutil.rmtree(workshop, ignore_errors=True)
    return target


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def let_read(path: Path) -> None:
    """Give a file the permissions of a new file; safetensors makes its files readable by their owner only."""
    mask = os.umask(0o077)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def _write_marker(folder: Path, origin: str) -> None:
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths}
    for path in paths:
        _sync(path)
    marker = folder / MARKER
    marker.write_text(json.dumps({"origin": origin, "files": files}, indent=2) + "\n", encoding="utf-8")
    _sync(marker)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _clear_leftovers(target: Path) -> None:
    """Remove what preparations that were killed left behind, of any model that nobody is preparing now."""
    for leftover in target.parent.glob(".*.preparing-*"):
        name = leftover.name.removeprefix(".").rpartition(".preparing-")[0]
        if name == target.name:  # whose lock is held here
            shutil.rmtree(leftover, ignore_errors=True)
            continue
        lock = FileLock(target.parent / f".{name}.lock")
        try:
            with lock.acquire(timeout=0):
                shutil.rmtree(leftover, ignore_errors=True)
        except Timeout:
            continue


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with step(f"Another process is preparing {target.name}; waiting for it"):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise AttnscopeError(
            f"can't write {target.name} into the cache",
            where=str(error.filename or target),
            allowed=f"a cache that can be written to ({error.strerror or error})",
            todo="free some disk space" if full else "set ATTNSCOPE_CACHE to a folder you can write to",
        ) from error
