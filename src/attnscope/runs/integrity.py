"""Checksums: whether a file of a run still has the bytes it was written with."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from attnscope.errors import AttnscopeError

State = tuple[int, int, int]
"""Size, time of change and inode: as long as they stay the same, so do the bytes."""
_known: dict[Path, tuple[State, str]] = {}


class DamagedError(AttnscopeError):
    """A file of a run does not have the bytes it was written with."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def state_of(path: Path | str) -> State:
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def is_in_state(path: str, state: State) -> bool:
    try:
        return state_of(path) == state
    except OSError:
        return False


def file_sha256(path: Path) -> str:
    """Of a file's bytes. Computed once per process, as long as the file stays in the same state."""
    state = state_of(path)
    before = _known.get(path)
    if before is not None and before[0] == state:
        return before[1]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _known[path] = state, digest
    return digest


def is_intact(path: Path, digest: str) -> bool:
    try:
        return file_sha256(path) == digest
    except OSError:
        return False


def refuse_if_changed(path: Path, digest: str, what: str) -> None:
    """Before a number of the file is shown."""
    try:
        intact = file_sha256(path) == digest
    except FileNotFoundError as error:
        raise damaged(path, f"{what} is missing", digest) from error
    except OSError as error:
        raise damaged(path, f"{what} can't be read: {error.strerror or error}", digest) from error
    if not intact:
        raise damaged(path, f"{what} was changed or damaged after it was written", digest)


def damaged(path: Path, problem: str, digest: str) -> DamagedError:
    return DamagedError(
        problem,
        where=str(path),
        allowed=f"the file as 'attnscope run' wrote it (SHA-256 {digest[:12]}...)",
        todo="give the same 'attnscope run' again; it repairs the run",
    )
