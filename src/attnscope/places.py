"""Where attnscope keeps files that it can download or create again, and how it writes a file: whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path

from attnscope.errors import AttnscopeError

FULL = (errno.ENOSPC, errno.EDQUOT)


def cache_folder() -> Path:
    """The cache: ATTNSCOPE_CACHE if set, else the user's cache folder. It may not exist yet."""
    override = os.environ.get("ATTNSCOPE_CACHE")
    return Path(override).expanduser().absolute() if override else user_cache_path("attnscope")


@contextmanager
def writing(path: Path, what: str) -> Iterator[None]:
    """While a file or folder is written: what the system refuses becomes an error. what: such as `the figure`."""
    try:
        yield
    except OSError as error:
        raise _refusal(path, what, error.strerror or str(error), full=error.errno in FULL) from error


def check_place(path: Path, what: str) -> None:
    """Refuse, before any work is done, a file that can't be written."""
    partial = _partial(path, what)
    with writing(path, what):
        partial.touch()
        partial.unlink()


@contextmanager
def written_whole(path: Path, what: str) -> Iterator[Path]:
    """Where to write a file: it takes the file's place at the end, or is removed if that is not reached."""
    partial = _partial(path, what)
    with writing(path, what):
        try:
            yield partial
            os.replace(partial, path)
        finally:
            with suppress(OSError):
                partial.unlink()


def _partial(path: Path, what: str) -> Path:
    if os.path.exists(path) and not os.path.isfile(path):
        raise _refusal(path, what, "it is a folder" if os.path.isdir(path) else "it is not a file")
    return path.with_name(f".{path.name}.partial")


def _refusal(path: Path, what: str, why: str, *, full: bool = False) -> AttnscopeError:
    missing = not os.path.exists(path.absolute().parent)
    return AttnscopeError(
        f"can't write {what}: {why}",
        where=str(path),
        allowed="a place you can write to",
        todo="free some disk space" if full else "make the folder first" if missing else "choose another place",
    )
