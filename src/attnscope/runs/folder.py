"""A run's folder: the manifest, the measured cells, the tables. Every file lands whole or not at all.

Cells are the store: one file each, named by the hash of what its numbers depend on. A stopped run goes on where it
was, and a changed study measures only cells it doesn't have yet. Tables are made from cells and can be made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from attnscope.errors import AttnscopeError

MANIFEST, STUDY, CELLS, LOCK = "manifest.json", "study.yaml", "cells", ".lock"


@dataclass(frozen=True)
class Measured:
    """A cell's numbers. `V` views: layers whose queries see the same keys share one."""

    received: NDArray[np.float32]  # (layers, heads, groups, keys)
    view: NDArray[np.int32]  # (layers,): which view each layer has
    uniform: NDArray[np.float32]  # (V, heads or 1, groups, keys)
    seen: NDArray[np.float32]  # (V, heads or 1, groups, keys)
    entropy: NDArray[np.float32] | None  # (layers, heads, groups)
    answer: NDArray[np.int64] | None  # ids the model wrote, where it was asked to


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
                todo="choose another with --out",
            ) from error
        if any(self.path.iterdir()) and not (self.path / MANIFEST).exists() and not (self.path / LOCK).exists():
            raise AttnscopeError(
                "this folder holds something that is not a run",
                where=str(self.path),
                allowed="a new or empty folder, or a run",
                todo="choose another with --out",
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
                todo="wait for it, or choose another folder with --out",
            ) from error

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
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def _cell(self, key: str) -> Path:
        return Path(CELLS) / f"{key}.safetensors"

    def has_cell(self, key: str) -> bool:
        return (self.path / self._cell(key)).exists()

    def write_cell(self, key: str, measured: Measured) -> None:
        arrays = {name: array for name, array in vars(measured).items() if array is not None}
        self.write(
            str(self._cell(key)),
            lambda path: save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path),
        )

    def read_cell(self, key: str) -> Measured | None:
        """None if the cell is not there or its file is damaged: then it is measured again."""
        path = self.path / self._cell(key)
        try:
            arrays = load_file(path)
            held: dict[str, Any] = {"entropy": None, "answer": None, **arrays}
            return Measured(**held)
        except FileNotFoundError:
            return None
        except (SafetensorError, TypeError):
            path.unlink(missing_ok=True)
            return None

    def forget_cells(self, keys: set[str]) -> None:
        """Remove cells other than these."""
        for path in (self.path / CELLS).glob("*.safetensors"):
            if path.stem not in keys:
                path.unlink()
