"""Checksums: whether a file of a run still has the bytes it was written with."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from attnscope.errors import AttnscopeError

State = tuple[int, int, int]
"""Size, modification time and inode: while these stay the same, so do the bytes."""
_checksums: dict[Path, tuple[State, str]] = {}


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
    """The checksum of a file's bytes, computed once per process while the file's state stays the same."""
    state = state_of(path)
    cached = _checksums.get(path)
    if cached is not None and cached[0] == state:
        return cached[1]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _checksums[path] = state, digest
    return digest


def is_intact(path: Path, digest: str) -> bool:
    try:
        return file_sha256(path) == digest
    except OSError:
        return False


def refuse_if_changed(path: Path, digest: str, what: str) -> None:
    """Refuse a changed file before any of its numbers is shown."""
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
        todo="repeat the same 'attnscope run'; it repairs the run",
    )
