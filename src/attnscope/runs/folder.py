"""A run's folder: the manifest, the measured cells, the tables. Every file lands whole or not at all.

Cells are the store, each under the hash of what its numbers depend on; those measured in one batch share a file. A
number's last bits depend on the batch it was computed in, so a batch lands whole or not at all: a stopped run then goes
on with the batches it would have had. A changed study measures only cells it doesn't have yet. Tables are made from
cells and can be made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from attnscope.errors import AttnscopeError, Parameter
from attnscope.models.cache import let_read
from attnscope.runs.shards import CELLS, cells_of, explained, shards

MANIFEST, STUDY, LOCK = "manifest.json", "study.yaml", ".lock"
REFUSED = "refused"


@dataclass(frozen=True)
class Measured:
    """A cell's numbers. `V` views: layers whose queries see the same keys share one."""

    received: NDArray[np.float32]  # (layers, heads, groups, keys)
    view: NDArray[np.int32]  # (layers,): which view each layer has
    uniform: NDArray[np.float32]  # (V, heads or 1, groups, keys)
    seen: NDArray[np.float32]  # (V, heads or 1, groups, keys)
    entropy: NDArray[np.float32] | None  # (layers, heads, groups)
    patterns: NDArray[np.float32] | None  # (layers, heads, patterns, groups, 3), see meter.reading
    answer: NDArray[np.int64] | None  # ids the model wrote, where it was asked to


@dataclass(frozen=True)
class Refused:
    """A cell that can't be measured, whatever is tried again."""

    reason: str


class RunFolder:
    """Reads and writes one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only one process writes a run at a time."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AttnscopeError(
                f"can't make the run's folder: {error.strerror}",
                where=str(self.path),
                allowed="a folder that can be written to",
                todo=("choose another with ", Parameter("out")),
            ) from error
        if any(self.path.iterdir()) and not self._is_run():
            raise AttnscopeError(
                "this folder holds something that is not a run",
                where=str(self.path),
                allowed="a new or empty folder, or a run",
                todo=("choose another with ", Parameter("out")),
            )
        try:
            with FileLock(self.path / LOCK, timeout=0):
                for left in self.path.rglob(".*.partial*"):
                    left.unlink(missing_ok=True)
                yield
        except Timeout as error:
            raise AttnscopeError(
                "another process is writing this run",
                where=str(self.path),
                allowed="one writer at a time",
                todo=("wait for it, or choose another folder with ", Parameter("out")),
            ) from error

    def _is_run(self) -> bool:
        """Whether attnscope made this folder; many things have a manifest.json."""
        if not (self.path / MANIFEST).exists():
            return all(each.name == LOCK for each in self.path.iterdir())
        try:
            return "attnscope" in (self.manifest() or {}).get("versions", {})
        except (AttnscopeError, AttributeError):
            return False

    def manifest(self) -> dict[str, Any] | None:
        """What the run says of itself; None if there is no run yet."""
        try:
            found: dict[str, Any] = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise AttnscopeError(
                f"can't read the run's manifest: {error}",
                where=str(self.path / MANIFEST),
                allowed="a manifest that attnscope wrote",
                todo="run the study into another folder",
            ) from error
        return found

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        self.write(MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))

    def write(self, name: str, writer: Callable[[Path], object]) -> None:
        """Have a file written under another name, then put in its place."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.stem}.partial{path.suffix}")
        try:
            writer(partial)
            let_read(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def has_cell(self, key: str) -> bool:
        return key in self._shards

    def write_cells(self, cells: Mapping[str, Measured | Refused]) -> None:
        """Some cells in one file: all of them land, or none."""
        if not cells:
            return
        arrays: dict[str, Any] = {}
        for key, cell in cells.items():
            if isinstance(cell, Refused):
                arrays[f"{key}/{REFUSED}"] = np.frombuffer(cell.reason.encode(), dtype=np.uint8)
                continue
            held = {name: array for name, array in vars(cell).items() if array is not None}
            arrays |= {f"{key}/{name}": np.ascontiguousarray(array) for name, array in held.items()}
        name = hashlib.sha256("".join(cells).encode()).hexdigest()
        shard = Path(CELLS) / f"{name}.safetensors"
        self.write(str(shard), lambda path: save_file(arrays, path))
        self._shards.update(dict.fromkeys(cells, self.path / shard))

    def read_cell(self, key: str) -> Measured | None:
        """None if the cell is not there or its file is damaged: then it is measured again."""
        held: dict[str, Any] = {"entropy": None, "patterns": None, "answer": None, **self._arrays(key)}
        try:
            return Measured(**held)
        except TypeError:  # nothing, or not what a cell holds
            return None

    def refusal(self, key: str) -> str | None:
        """Why a cell can't be measured, if it can't."""
        told = self._arrays(key, REFUSED).get(REFUSED)
        return None if told is None else bytes(told).decode()

    def _arrays(self, key: str, only: str = "") -> dict[str, Any]:
        path = self._shards.get(key)
        if path is None:
            return {}
        with explained(path), safe_open(path, framework="numpy") as shard:
            names = [name for name in shard.keys() if name.startswith(f"{key}/{only}")]  # noqa: SIM118
            return {name.partition("/")[2]: shard.get_tensor(name) for name in names}

    def forget_cells(self, keys: set[str]) -> None:
        """Remove the files that hold none of these cells."""
        needed = {path for key, path in self._shards.items() if key in keys}
        for path in (self.path / CELLS).glob("*.safetensors"):
            if path not in needed:
                path.unlink()
        self.__dict__.pop("_shards", None)

    @cached_property
    def _shards(self) -> dict[str, Path]:
        """Which file each cell is in. What can't be read holds none."""
        found: dict[str, Path] = {}
        for path, shard in shards(self.path):
            if shard is None:  # cut short or spoilt: measured again
                path.unlink()
            else:
                found.update(dict.fromkeys(cells_of(shard), path))
        return found
