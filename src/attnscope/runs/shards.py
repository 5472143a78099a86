"""The files that measured cells are in, read only: which holds which cell, and any part of a cell without the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from attnscope.errors import AttnscopeError

CELLS = "cells"


def shards(folder: Path) -> Iterator[tuple[Path, Any | None]]:
    """Every file of cells, opened; None in place of one that is cut short or spoilt."""
    for path in sorted((folder / CELLS).glob("*.safetensors")):
        try:
            with explained(path):
                shard = safe_open(path, framework="numpy")
        except SafetensorError:
            yield path, None
        else:
            yield path, shard


def cells_of(shard: Any) -> Iterator[str]:
    """The keys of the cells in a file."""
    yield from dict.fromkeys(name.partition("/")[0] for name in shard.keys())  # noqa: SIM118


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What the system says of a file it can't read, in four parts."""
    try:
        yield
    except OSError as error:
        raise AttnscopeError(
            f"can't read what was measured: {error.strerror or error}",
            where=str(path),
            allowed="a file that can be read",
            todo="see why, then give the same command again",
        ) from error


class CellReader:
    """Parts of cells, by key. Files stay open: a head of a thousand prompts is a thousand small reads."""

    def __init__(self, folder: Path) -> None:
        self._shards: Mapping[str, Any] = {
            key: shard for _, shard in shards(folder) if shard is not None for key in cells_of(shard)
        }

    def __contains__(self, key: str) -> bool:
        return key in self._shards

    def part(self, key: str, name: str) -> Any:
        """An array of a cell, read only where it is indexed."""
        return self._shards[key].get_slice(f"{key}/{name}")
