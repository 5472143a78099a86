"""Writes the tables of a run from cells and their records; `columns` declares them. Rows are in the study's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnscope.places import writing
from attnscope.records import DEFINED, RECEIVED, UNIFORM, VIEW, Record
from attnscope.records.rest import shares_of_rest
from attnscope.runs.cells import Cell
from attnscope.runs.columns import TABLES
from attnscope.runs.folder import RunFolder
from attnscope.runs.integrity import file_sha256
from attnscope.runs.manifest import TableFacts
from attnscope.runs.parquet import batch_of, coded, parquet_writer
from attnscope.runs.store import Store
from attnscope.text.classes import OTHER, REMOVED, membership, removed_tokens, set_membership, taken_by
from attnscope.text.query_rules import QueryRule

GROUP = 32  # at most this many cells per row group,
GROUP_NUMBERS = 2**24  # and about this many numbers


@dataclass(frozen=True)
class ModelAxes:
    """What is measured of one model: the labels along the axes of its numbers."""

    layers: Sequence[int]
    heads: Sequence[int]
    queries: Sequence[str | QueryRule]
    """As in the study; which groups they make depends on the prompt."""
    classes: Mapping[str, str]
    sets: Mapping[str, str] = field(default_factory=dict)
    """Sets of tokens beside the classes."""
    removed: Sequence[str] = ()
    """The rules of tokens that are left out of classes and sets."""
    measures: Sequence[str] = (RECEIVED,)


Finished = tuple[Cell, str, ModelAxes]
"""A measured cell, its key, and the axes of its numbers."""


def write_tables(
    folder: RunFolder, store: Store, cells: Iterable[Finished], tick: Callable[[], None] = lambda: None
) -> dict[str, TableFacts]:
    """Write all tables, cell by cell in the order given, several cells per row group. tick: called after each cell."""
    with writing(folder.path, "the run's tables"):
        rows = _write_tables(folder, store, cells, tick)
    return {
        name: TableFacts(sha256=file_sha256(folder.path / f"{name}.parquet"), rows=count)
        for name, count in rows.items()
    }


def _write_tables(
    folder: RunFolder, store: Store, cells: Iterable[Finished], tick: Callable[[], None]
) -> dict[str, int]:
    """Returns how many rows each table has."""
    partial = {name: folder.path / f".{name}.partial.parquet" for name in TABLES}
    writers = {name: parquet_writer(name, partial[name]) for name in TABLES}
    rows = dict.fromkeys(TABLES, 0)
    try:
        for group in row_groups(list(cells)):
            batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in TABLES}
            for cell, key, axes in group:
                record = store.record(cell, key)
                for name in TABLES:
                    batches[name].append(_BUILDERS[name](cell, key, axes, record))
                tick()
            for name, parts in batches.items():
                table = pa.Table.from_batches(parts).unify_dictionaries().combine_chunks()
                rows[name] += len(table)
                writers[name].write_table(table)
        for writer in writers.values():
            writer.close()
        for name in TABLES:
            partial[name].replace(folder.path / f"{name}.parquet")
    finally:
        for name in TABLES:
            writers[name].close()
            partial[name].unlink(missing_ok=True)
    return rows


def row_groups(cells: Sequence[Finished]) -> Iterator[list[Finished]]:
    """Cells that are written, and later read, together; they have to fit into memory."""
    group: list[Finished] = []
    numbers = 0
    for each in cells:
        cell, _, axes = each
        more = len(cell.tokens) * len(axes.layers) * len(axes.heads) * len(cell.groups)
        if group and (len(group) == GROUP or numbers + more > GROUP_NUMBERS):
            yield group
            group, numbers = [], 0
        group.append(each)
        numbers += more
    if group:
        yield group


def overlaps(cells: Iterable[Finished]) -> dict[str, list[str]]:
    """For each class that lost tokens to earlier ones in some prompt: which these are, in the study's order."""
    taken: dict[str, set[str]] = {}
    for cell, _, axes in cells:
        for name, others in taken_by(axes.classes, cell.text.text, cell.tokens, cell.text.spans).items():
            taken.setdefault(name, set()).update(others)
    return {name: [each for each in taken if each in others] for name, others in taken.items() if others}


def _where(cell: Cell) -> dict[str, Any]:
    return {"model": cell.model, "condition": cell.condition, "prompt": cell.prompt.number}


def _prompts(cell: Cell, key: str, axes: ModelAxes, record: Record) -> pa.RecordBatch:
    columns = {
        "name": cell.prompt.name,
        "cluster": cell.prompt.cluster,
        "text": cell.text.text,
        "spans": [[vars(span) for span in cell.text.spans]],
        "tokens": len(cell.tokens),
        "inserted": cell.inserted,
        "query_groups": [cell.queries],
        "aligned": any(place is not None for place in cell.alignment.base),
        "remerged": len(cell.alignment.remerged),
        "cell": key,
    }
    return batch_of("prompts", _where(cell) | columns, 1)


def _tokens(cell: Cell, key: str, axes: ModelAxes, record: Record) -> pa.RecordBatch:
    tokens = cell.tokens
    columns = {
        "position": [token.position for token in tokens],
        "token_id": [token.id for token in tokens],
        "text": [token.text for token in tokens],
        "segment": list(cell.segments),
        "start": [token.start for token in tokens],
        "end": [token.end for token in tokens],
        "special": [token.special for token in tokens],
        "removed": _removed(cell, axes),
        "base_position": list(cell.alignment.base),
    }
    return batch_of("tokens", _where(cell) | columns, len(tokens))


def mass_rows(cell: Cell, key: str, axes: ModelAxes, record: Record) -> pa.RecordBatch:
    """Rows by query group, layer, head, measure and class; null where no query has a value, or nothing is left."""
    prompt = cell.text.text, cell.tokens, cell.text.spans
    shares = np.concatenate([membership(axes.classes, *prompt), set_membership(axes.sets, *prompt)])
    removed = _removed(cell, axes)
    view = record.arrays[VIEW]
    names = [name for name in axes.measures if record.arrays[name].ndim == 4]
    masses, expectations, undefined = [], [], []
    for name in names:  # (layers, heads, groups, keys) -> (groups, layers, heads, classes and sets)
        if not axes.removed:
            summed = partial(_summed, shares=shares)
        elif name == RECEIVED:
            summed = partial(_summed_rest, shares=shares, removed=removed)
        else:  # a key's other measures don't depend on which keys are left
            summed = partial(_summed, shares=np.concatenate([shares, removed[None]]))
        mass = summed(record.arrays[name]).transpose(2, 0, 1, 3)
        uniform = summed(record.arrays[f"{name}{UNIFORM}"])[view].transpose(2, 0, 1, 3)
        masses.append(mass)
        expectations.append(np.broadcast_to(uniform, mass.shape))
        none = record.defined(name).values.transpose(2, 0, 1)[..., None] == 0  # (groups, layers, heads, 1)
        undefined.append(none | np.isnan(mass))
    tokens = [*axes.classes, OTHER, *axes.sets, *([REMOVED] if axes.removed else [])]
    stacked, expected = np.stack(masses, 3), np.stack(expectations, 3)  # (groups, layers, heads, measures, classes)
    missing = np.stack(undefined, 3).ravel()
    group, layer, head, measure, number = np.indices(stacked.shape).reshape(5, -1)
    columns = {
        "queries": coded(record.queries, group),
        "layer": np.asarray(record.layers, dtype=np.int16)[layer],
        "head": np.asarray(record.heads, dtype=np.int16)[head],
        "measure": coded(names, measure),
        "token_class": coded(tokens, number),
        "mass": pa.array(stacked.ravel(), mask=missing),
        "expected": pa.array(expected.ravel(), mask=missing | np.isnan(expected.ravel())),
    }
    return batch_of("mass", _where(cell) | columns, stacked.size)


def _removed(cell: Cell, axes: ModelAxes) -> NDArray[np.bool_]:
    return removed_tokens(axes.removed, cell.text.text, cell.tokens, cell.text.spans)


def _summed(numbers: NDArray[Any], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers (..., keys) summed over the keys of each of `shares` (sets, keys): (..., sets)."""
    summed: NDArray[np.float64] = numbers.astype(np.float64) @ shares.T
    return summed


def _summed_rest(
    received: NDArray[Any], shares: NDArray[np.float64], removed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The same as shares of what is left without the removed keys, and at the end what these receive, of all."""
    rest = np.where(removed, 0.0, shares_of_rest(received, removed))
    return np.concatenate([_summed(rest, shares), _summed(received, removed[None].astype(np.float64))], -1)


def _heads(cell: Cell, key: str, axes: ModelAxes, record: Record) -> pa.RecordBatch:
    """Rows by query group, layer, head and measure; null where no query has a value."""
    view = record.arrays[VIEW]
    names = [name for name in axes.measures if record.arrays[name].ndim == 3]
    sizes = (len(record.queries), len(record.layers), len(record.heads), len(names))
    value, expected, defined = np.zeros(sizes), np.zeros(sizes), np.ones(sizes)
    for place, name in enumerate(names):  # (layers, heads, groups) -> (groups, layers, heads)
        value[..., place] = record.arrays[name].transpose(2, 0, 1)
        expected[..., place] = record.arrays[f"{name}{UNIFORM}"][view].transpose(2, 0, 1)
        if f"{name}{DEFINED}" in record.arrays:
            defined[..., place] = record.arrays[f"{name}{DEFINED}"][view].transpose(2, 0, 1)
    group, layer, head, measure = np.indices(sizes).reshape(4, -1)
    none = (defined == 0).ravel()
    columns = {
        "queries": coded(record.queries, group),
        "layer": np.asarray(record.layers, dtype=np.int16)[layer],
        "head": np.asarray(record.heads, dtype=np.int16)[head],
        "measure": coded(names, measure),
        "value": pa.array(value.ravel(), mask=none),
        "expected": pa.array(expected.ravel(), mask=none | np.isnan(expected.ravel())),
        "defined": defined.ravel(),
    }
    return batch_of("heads", _where(cell) | columns, value.size)


_BUILDERS = {"prompts": _prompts, "tokens": _tokens, "mass": mass_rows, "heads": _heads}
