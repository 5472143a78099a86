"""The store: the only copy of what was measured. One shard per batch, written whole or not at all.

A number's last bits depend on the batch it was computed in, so a batch is stored whole: a stopped run then continues
with the batches it would have had. A changed study only measures cells that are not stored yet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from attnscope.errors import AttnscopeError
from attnscope.places import writing, written_whole
from attnscope.records import Record, Scores
from attnscope.runs.cells import Cell
from attnscope.runs.integrity import sha256
from attnscope.runs.manifest import ShardFacts
from attnscope.runs.shards import (
    ANSWER,
    CHOICES,
    KL,
    LIKELIEST,
    LOG_PROBS,
    METADATA,
    REFUSED,
    SCORED,
    SHARDS,
    Labels,
    Shard,
    axes_of,
    intact_shards,
    labels_as_json,
    shard_path,
)


@dataclass(frozen=True)
class MeasuredCell:
    """A cell's record, and the token ids of the answer if the model generated one."""

    record: Record
    answer: Sequence[int] | None = None


@dataclass(frozen=True)
class ScoredTrial:
    """What a model makes of a trial's answers. The first variant is the model as it is, then the trial's own."""

    answers: Sequence[Scores]
    """Of the answer: one per variant, token by token."""
    choices: NDArray[np.float64]
    """(variants, answers): the log probability of the answer and of each choice."""


@dataclass(frozen=True)
class RefusedCell:
    """A cell that can't be measured, however often you try."""

    reason: str


@dataclass(frozen=True)
class NoRoom:
    """A cell that did not fit memory. Another time it may fit, so nothing is stored of it."""

    reason: str


Result = MeasuredCell | ScoredTrial | RefusedCell | NoRoom
Results = Mapping[str, Result]
"""By the key of a cell or of a trial."""


class Store:
    """Reads and writes the shards of a run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.removed: list[str] = []
        """Shards that were damaged, by name: their cells are measured again."""
        self._shards: dict[Path, Shard] = {}
        self._paths: dict[str, Path] = {}
        for path, intact in intact_shards(folder):
            if intact:
                self._add(path)
            else:
                path.unlink()
                self.removed.append(path.stem)

    def _add(self, path: Path) -> None:
        shard = Shard(path)
        self._shards[path] = shard
        for cell in shard.arrays_by_cell:
            self._paths.setdefault(cell, path)

    def __contains__(self, cell: str) -> bool:
        return cell in self._paths

    @property
    def has_numbers(self) -> bool:
        """Whether any cell was measured."""
        return any(REFUSED not in self._shards[path].arrays_by_cell[cell] for cell, path in self._paths.items())

    def write(self, results: Results) -> None:
        """Write the cells of a batch into one shard: all of them, or none."""
        settled = {key: result for key, result in results.items() if not isinstance(result, NoRoom)}
        if not settled:
            return
        data = shard_bytes(settled)
        path = shard_path(self.folder, sha256(data))
        with writing(path, "the run"):
            path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path, "the run") as partial, partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._add(path)

    def refusal(self, cell: str) -> str | None:
        """Why a cell can't be measured; None if it can."""
        reason = self._array(cell, REFUSED)
        return None if reason is None else bytes(reason).decode()

    def answer(self, cell: str) -> list[int] | None:
        """The token ids that the model generated after the prompt, if any."""
        ids = self._array(cell, ANSWER)
        return None if ids is None else [int(each) for each in ids]

    def scored(self, trial: str) -> ScoredTrial:
        """The scores of a trial."""
        arrays = {name: self._array(trial, name) for name in SCORED}
        if any(array is None for array in arrays.values()):
            raise _missing(self.folder, trial)
        given = {name: np.asarray(array) for name, array in arrays.items()}
        log_probs, likeliest, kl = (given[name] for name in (LOG_PROBS, LIKELIEST, KL))
        scores = [Scores(*each) for each in zip(log_probs, likeliest, kl, strict=True)]
        return ScoredTrial(scores, given[CHOICES])

    def record(self, cell: Cell, key: str) -> Record:
        """The record of a measured cell."""
        path = self._paths.get(key)
        if path is None or REFUSED in self._shards[path].arrays_by_cell[key]:
            raise _missing(self.folder, key)
        shard = self._shards[path]
        names = [name for name in shard.arrays_by_cell[key] if name != ANSWER]
        arrays = {name: shard.array(key, name) for name in names}
        labels = shard.labels(key)
        return Record(cell.text.text, cell.tokens, labels.layers, labels.heads, labels.queries, arrays)

    def _array(self, cell: str, name: str) -> NDArray[Any] | None:
        path = self._paths.get(cell)
        if path is None or name not in self._shards[path].arrays_by_cell[cell]:
            return None
        return self._shards[path].array(cell, name)

    def facts(self, cells: Sequence[str]) -> list[ShardFacts]:
        """The shards with these cells, each with all of its cells."""
        paths = {self._paths[cell] for cell in cells if cell in self._paths}
        return [ShardFacts(sha256=path.stem, cells=sorted(self._shards[path].arrays_by_cell)) for path in sorted(paths)]

    def forget(self, cells: set[str]) -> None:
        """Remove the shards that contain none of these cells."""
        needed = {self._paths[cell] for cell in cells if cell in self._paths}
        for path in set(self._shards) - needed:
            path.unlink(missing_ok=True)
            del self._shards[path]
        self._paths = {cell: path for cell, path in self._paths.items() if path in needed}


def _missing(folder: Path, key: str) -> AttnscopeError:
    return AttnscopeError(
        "a measured cell is missing",
        where=f"{folder / SHARDS}, cell {key[:12]}",
        allowed="shards as they were written",
        todo="repeat the same 'attnscope run'; it measures what is missing",
    )


def _arrays_of(scored: ScoredTrial) -> dict[str, NDArray[Any]]:
    parts = {LOG_PROBS: "log_probs", LIKELIEST: "likeliest", KL: "kl"}
    stacked = {name: np.stack([getattr(each, part) for each in scored.answers]) for name, part in parts.items()}
    return {**stacked, CHOICES: scored.choices}


def shard_bytes(results: Mapping[str, MeasuredCell | ScoredTrial | RefusedCell]) -> bytes:
    """The same results give the same bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    axes: dict[str, list[str]] = {}
    labels: dict[str, Labels] = {}
    for key, result in results.items():
        if isinstance(result, RefusedCell):
            named: dict[str, NDArray[Any]] = {REFUSED: np.frombuffer(result.reason.encode(), dtype=np.uint8)}
        elif isinstance(result, ScoredTrial):
            named = _arrays_of(result)
        else:
            named = dict(result.record.arrays)
            labels[key] = Labels(result.record.layers, result.record.heads, result.record.queries)
            if result.answer is not None:
                named[ANSWER] = np.asarray(result.answer, dtype=np.int64)
        for name, array in named.items():
            arrays[f"{key}/{name}"] = np.ascontiguousarray(array)
            axes[name] = axes_of(name, array.ndim)
    content = {"format": 2, "axes": dict(sorted(axes.items())), "labels": labels_as_json(labels)}
    data: bytes = save(arrays, {METADATA: json.dumps(content)})
    return data
