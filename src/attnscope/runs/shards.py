"""Shards: the files with the measured arrays, one per batch. This module reads them; `store` writes them.

A shard is a safetensors file named by the SHA-256 of its bytes. It contains the arrays of the batch's records, each
under CELL/ARRAY; the metadata gives the axes of every array and the labels along them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from attnscope.errors import AttnscopeError
from attnscope.records import DEFINED, HEAD_AXES, KEY_AXES, SEEN, UNIFORM, VIEW
from attnscope.runs.integrity import State, damaged, is_in_state, is_intact, refuse_if_changed, state_of
from attnscope.runs.manifest import ShardFacts

SHARDS = "shards"
ENDING = ".safetensors"
METADATA = "attnscope"
REFUSED, ANSWER = "refused", "answer"
LOG_PROBS, LIKELIEST, KL, CHOICES = "log_probs", "likeliest", "kl", "choices"
SCORED = {
    LOG_PROBS: ("variant", "token"),
    LIKELIEST: ("variant", "token"),
    KL: ("variant", "token"),
    CHOICES: ("variant", "choice"),
}
"""The arrays of a trial, with their axes: variant 0 is the model as it is."""
_NAME = re.compile(r"[0-9a-f]{64}")


def shard_path(folder: Path, digest: str) -> Path:
    return folder / SHARDS / f"{digest}{ENDING}"


def is_named_as_shard(path: Path) -> bool:
    return path.suffix == ENDING and _NAME.fullmatch(path.stem) is not None


def axes_of(name: str, dimensions: int) -> list[str]:
    """The names of an array's axes; arrays stored once per view have `view` in place of `layer`."""
    if name == REFUSED:
        return ["byte"]
    if name == ANSWER:
        return ["token"]
    if name == VIEW:
        return ["layer"]
    if name in SCORED:
        return list(SCORED[name])
    axes = list(KEY_AXES if dimensions == len(KEY_AXES) else HEAD_AXES)
    by_view = name == SEEN or name.endswith((UNIFORM, DEFINED))
    return ["view", *axes[1:]] if by_view else axes


@dataclass(frozen=True)
class Labels:
    """The labels along the axes of a cell's arrays."""

    layers: Sequence[int] = ()
    heads: Sequence[int] = ()
    queries: Sequence[str] = ()


def labels_as_json(labels: Mapping[str, Labels]) -> dict[str, Any]:
    """The labels of each cell. Layers and heads are those of the batch; only query groups differ between cells."""
    one = next(iter(labels.values()), Labels())
    kinds = list(dict.fromkeys(tuple(each.queries) for each in labels.values()))
    return {
        "layer": list(one.layers),
        "head": list(one.heads),
        "queries": [list(each) for each in kinds],
        "queries_of": {cell: kinds.index(tuple(each.queries)) for cell, each in labels.items()},
    }


class Shard:
    """One open shard."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            file: Any = safe_open(path, framework="numpy")
            self._file, self._names = file, list(file.keys())
            content = json.loads(file.metadata()[METADATA])
            labels = content["labels"]
            self._layers, self._heads, self._queries = labels["layer"], labels["head"], labels["queries"]
            self._queries_of: dict[str, int] | None = labels.get("queries_of")
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise AttnscopeError(
                f"this is not a shard of a run ({type(error).__name__})",
                where=str(path),
                allowed="a shard that 'attnscope run' wrote",
                todo="repeat the same 'attnscope run'; it measures what is missing",
            ) from error

    def labels(self, cell: str) -> Labels:
        """The labels along the axes of a cell's arrays."""
        mine = self._queries if self._queries_of is None else self._queries[self._queries_of[cell]]
        return Labels(self._layers, self._heads, mine)

    @cached_property
    def arrays_by_cell(self) -> dict[str, list[str]]:
        """The names of each cell's arrays."""
        cells: dict[str, list[str]] = {}
        for name in self._names:
            cell, _, array = name.partition("/")
            cells.setdefault(cell, []).append(array)
        return cells

    def lazy_array(self, cell: str, array: str) -> Any:
        """An array of a cell; only the part you index is read."""
        return self._file.get_slice(f"{cell}/{array}")

    def array(self, cell: str, array: str) -> NDArray[Any]:
        return np.asarray(self._file.get_tensor(f"{cell}/{array}"))


def intact_shards(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Every file named like a shard, and whether its bytes match its name."""
    for path in sorted((folder / SHARDS).glob(f"*{ENDING}")):
        if is_named_as_shard(path):
            yield path, is_intact(path, path.stem)


class CellReader:
    """Reads arrays of cells, by key. Files stay open: one head of a thousand prompts takes a thousand small reads.

    verify: check a shard's checksum before its first number is read, and again if the file changes.
    """

    def __init__(self, folder: Path, facts: Sequence[ShardFacts], verify: bool = True) -> None:
        self.folder, self.facts, self.verify = folder, facts, verify
        self._digests = {cell: shard.sha256 for shard in reversed(facts) for cell in shard.cells}
        self._open: dict[str, tuple[Shard, str, State]] = {}
        """Per checksum: the shard, its path, and the state in which the file was verified."""

    def shard(self, cell: str) -> Shard:
        """The shard of a cell; refused if it is missing or damaged."""
        digest = self._digests.get(cell)
        if digest is None:
            raise damaged(self.folder / SHARDS, f"cell {cell[:12]} is in no shard of this run", "")
        opened = self._open.get(digest)
        if opened is not None and (not self.verify or is_in_state(opened[1], opened[2])):
            return opened[0]
        path = shard_path(self.folder, digest)
        if self.verify or not path.is_file():
            refuse_if_changed(path, digest, "a shard of the run")
        shard = Shard(path) if opened is None else opened[0]
        self._open[digest] = shard, str(path), state_of(path)
        return shard

    def shards(self, cells: Sequence[str]) -> list[Shard]:
        """The shard of each cell; each file is checked once, however many of the cells it contains."""
        by_digest: dict[str, Shard] = {}
        for cell in cells:
            digest = self._digests.get(cell, "")
            if digest not in by_digest:
                by_digest[digest] = self.shard(cell)
        return [by_digest[self._digests[cell]] for cell in cells]

    def verify_all(self) -> None:
        """Verify every shard now, so that later reads need not wait for it."""
        for facts in self.facts:
            refuse_if_changed(shard_path(self.folder, facts.sha256), facts.sha256, "a shard of the run")

    def lazy_array(self, cell: str, array: str) -> Any:
        """An array of a cell; only the part you index is read."""
        return self.shard(cell).lazy_array(cell, array)

    def arrays(self, cell: str) -> dict[str, NDArray[Any]]:
        shard = self.shard(cell)
        return {name: shard.array(cell, name) for name in shard.arrays_by_cell.get(cell, ())}
