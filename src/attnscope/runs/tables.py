"""The tables of a run: their columns, declared once, and how they are made from cells. Sorted in the study's order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnscope.errors import AttnscopeError
from attnscope.measures.patterns import PATTERNS
from attnscope.runs.cells import Cell
from attnscope.runs.folder import Measured, RunFolder
from attnscope.runs.marks import marked
from attnscope.text.classes import OTHER, membership

COMPRESSION = "zstd"
GROUP = 32  # cells to a row group at most,
GROUP_NUMBERS = 2**24  # and about so many numbers


@dataclass(frozen=True)
class Column:
    name: str
    type: Any
    meaning: str


_NAMES = pa.dictionary(pa.int32(), pa.string())
_SPAN = pa.struct([("segment", pa.string()), ("start", pa.int32()), ("end", pa.int32())])
_WHERE = (
    Column("model", _NAMES, "the model's label"),
    Column("condition", _NAMES, "the condition's name"),
    Column("prompt", pa.int32(), "the prompt's number, from 0"),
)
_GAZE = (
    *_WHERE,
    Column("queries", _NAMES, "the query group"),
    Column("layer", pa.int16(), "from 0"),
    Column("head", pa.int16(), "from 0"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "prompts": (
        *_WHERE,
        Column("name", pa.string(), "what the study calls the prompt"),
        Column("text", pa.string(), "the whole text as the model got it"),
        Column("spans", pa.list_(_SPAN), "the segments it is made of, by characters, in order and without a gap"),
        Column("tokens", pa.int32(), "how many tokens it has"),
        Column("inserted", pa.int32(), "how many of them the condition inserted"),
        Column("aligned", pa.bool_(), "whether its text without the insertion is the base prompt's"),
        Column("remerged", pa.int32(), "tokens of base text that have no counterpart in the base prompt"),
        Column("cell", pa.string(), "the hash of what its numbers depend on"),
    ),
    "tokens": (
        *_WHERE,
        Column("position", pa.int32(), "from 0"),
        Column("token_id", pa.int32(), "in the model's vocabulary"),
        Column("text", pa.string(), "the token's characters, or its name if it has none"),
        Column("segment", _NAMES, "the part of the prompt that most of it lies in"),
        Column("start", pa.int32(), "first character in the text"),
        Column("end", pa.int32(), "the character after its last"),
        Column("special", pa.bool_(), "a mark of the model's own"),
        Column("base_position", pa.int32(), "of the same token in the base prompt; null if inserted or re-merged"),
    ),
    "received": (
        *_GAZE,
        Column("view", pa.int16(), "which row of views tells what the queries see"),
        Column("received", pa.list_(pa.float32()), "attention received, one number a key"),
        Column("entropy", pa.float32(), "of the gaze, in nats; null unless asked for"),
    ),
    "views": (
        *_WHERE,
        Column("queries", _NAMES, "the query group"),
        Column("view", pa.int16(), "layers whose queries see the same keys share one"),
        Column("head", pa.int16(), "null: the same for all heads"),
        Column("uniform", pa.list_(pa.float32()), "what a gaze at all visible keys alike would give each key"),
        Column("seen", pa.list_(pa.float32()), "the share of the group's queries that can see each key"),
    ),
    "patterns": (
        *_GAZE,
        Column("pattern", _NAMES, "previous, next, repeated, induction or local; no rows unless asked for"),
        Column("attention", pa.float64(), "the share of the group's attention on the pattern's keys"),
        Column("expected", pa.float64(), "what a gaze at all visible keys alike would put there"),
        Column("queries_with", pa.float64(), "the share of the group's queries that have such a key"),
    ),
    "mass": (
        *_GAZE,
        Column("token_class", _NAMES, "the class; `other` holds what no class claims"),
        Column("mass", pa.float64(), "the share of attention that lands on the class"),
        Column("expected", pa.float64(), "what a gaze at all visible keys alike would put there"),
    ),
}


@dataclass(frozen=True)
class Shape:
    """What the axes of a model's numbers are."""

    layers: Sequence[int]
    heads: Sequence[int]
    queries: Sequence[str]
    classes: Mapping[str, str]


def schema(table: str) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in TABLES[table]])


def mark_for(cells: Sequence[tuple[Cell, str, Shape]]) -> str:
    """A hash of all that the tables of these cells depend on."""
    made = hashlib.sha256()
    for cell, key, shape in cells:
        told = [cell.model, cell.condition, cell.prompt.number, cell.prompt.name, key, list(shape.classes.items())]
        base = None if cell.alignment is None else cell.alignment.base
        made.update(json.dumps([*told, [vars(span) for span in cell.text.spans], base]).encode())
    return made.hexdigest()


def write_tables(folder: RunFolder, cells: Iterable[tuple[Cell, str, Shape]], tick: Any = lambda: None) -> str:
    """All tables, cell by cell in the order given, some cells to a row group; their mark. tick: after each cell."""
    names = list(TABLES)
    done = list(cells)
    mark = mark_for(done)
    partial = {name: folder.path / f".{name}.partial.parquet" for name in names}
    writers = {name: _writer(name, partial[name], marked(schema(name), mark)) for name in names}
    try:
        for group in _grouped(done):
            made: dict[str, list[pa.RecordBatch]] = {name: [] for name in names}
            for cell, key, shape in group:
                measured = folder.read_cell(key)
                if measured is None:
                    raise AttnscopeError(
                        "a measured cell is gone or damaged",
                        where=f"{folder.path}, cell {key[:12]}",
                        allowed="cells as they were written",
                        todo="give the same 'attnscope run' again; it measures what is missing",
                    )
                for name in names:
                    made[name].append(_BUILDERS[name](cell, key, shape, measured))
                tick()
            for name, parts in made.items():
                writers[name].write_table(pa.Table.from_batches(parts).unify_dictionaries().combine_chunks())
        for writer in writers.values():
            writer.close()
        for name in names:
            partial[name].replace(folder.path / f"{name}.parquet")
    finally:
        for name in names:
            writers[name].close()
            partial[name].unlink(missing_ok=True)
    return mark


def _writer(table: str, path: Path, columns: pa.Schema) -> pq.ParquetWriter:
    """Names are coded, numbers are not: nearly each is another."""
    coded = [column.name for column in TABLES[table] if isinstance(column.type, pa.DictionaryType)]
    return pq.ParquetWriter(path, columns, compression=COMPRESSION, use_dictionary=coded)


def _grouped(cells: Sequence[tuple[Cell, str, Shape]]) -> Iterator[list[tuple[Cell, str, Shape]]]:
    """One row group each: what has to fit memory at once, when it is written and when it is read."""
    group: list[tuple[Cell, str, Shape]] = []
    numbers = 0
    for each in cells:
        cell, _, shape = each
        more = len(cell.tokens) * len(shape.layers) * len(shape.heads) * len(shape.queries)
        if group and (len(group) == GROUP or numbers + more > GROUP_NUMBERS):
            yield group
            group, numbers = [], 0
        group.append(each)
        numbers += more
    if group:
        yield group


def _batch(table: str, columns: Mapping[str, Any], rows: int) -> pa.RecordBatch:
    arrays = []
    for column in TABLES[table]:
        given = columns[column.name]
        if isinstance(given, pa.Array):
            arrays.append(given if given.type == column.type else given.cast(column.type))
        elif isinstance(given, (list, tuple, np.ndarray)):
            arrays.append(pa.array(given, type=column.type))
        else:  # one value for all rows
            arrays.append(_repeated(given, rows, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema(table))


def _repeated(value: Any, rows: int, kind: Any) -> pa.Array:
    if isinstance(kind, pa.DictionaryType):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([value]))
    return pa.repeat(pa.scalar(value, type=kind), rows)


def _coded(names: Sequence[str], codes: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(list(names)))


def _where(cell: Cell) -> dict[str, Any]:
    return {"model": cell.model, "condition": cell.condition, "prompt": cell.prompt.number}


def _lists(rows: Any) -> pa.Array:
    """(rows, keys) -> a list a row, without a copy of each."""
    count, keys = rows.shape
    offsets = pa.array(np.arange(0, (count + 1) * keys, keys, dtype=np.int32)) if keys else None
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(rows, dtype=np.float32).ravel()))


def _prompts(cell: Cell, key: str, shape: Shape, measured: Measured) -> pa.RecordBatch:
    alignment = cell.alignment
    told = {
        "name": cell.prompt.name,
        "text": cell.text.text,
        "spans": [[vars(span) for span in cell.text.spans]],
        "tokens": len(cell.tokens),
        "inserted": cell.inserted,
        "aligned": alignment is not None,
        "remerged": 0 if alignment is None else len(alignment.remerged),
        "cell": key,
    }
    return _batch("prompts", _where(cell) | told, 1)


def _tokens(cell: Cell, key: str, shape: Shape, measured: Measured) -> pa.RecordBatch:
    tokens = cell.tokens
    base = [None] * len(tokens) if cell.alignment is None else list(cell.alignment.base)
    told = {
        "position": [token.position for token in tokens],
        "token_id": [token.id for token in tokens],
        "text": [token.text for token in tokens],
        "segment": list(cell.segments),
        "start": [token.start for token in tokens],
        "end": [token.end for token in tokens],
        "special": [token.special for token in tokens],
        "base_position": base,
    }
    return _batch("tokens", _where(cell) | told, len(tokens))


def _received(cell: Cell, key: str, shape: Shape, measured: Measured) -> pa.RecordBatch:
    by_group = measured.received.transpose(2, 0, 1, 3)  # (groups, layers, heads, keys)
    groups, layers, heads, keys = by_group.shape
    rows = groups * layers * heads
    group, layer, head = np.indices((groups, layers, heads)).reshape(3, -1)
    entropy: Any = None if measured.entropy is None else measured.entropy.transpose(2, 0, 1).ravel()
    told = {
        "queries": _coded(shape.queries, group),
        "layer": np.asarray(shape.layers, dtype=np.int16)[layer],
        "head": np.asarray(shape.heads, dtype=np.int16)[head],
        "view": measured.view.astype(np.int16)[layer],
        "received": _lists(by_group.reshape(rows, keys)),
        "entropy": entropy,
    }
    return _batch("received", _where(cell) | told, rows)


def _views(cell: Cell, key: str, shape: Shape, measured: Measured) -> pa.RecordBatch:
    views, heads, groups, keys = measured.uniform.shape
    group, view, head = np.indices((groups, views, heads)).reshape(3, -1)
    rows = groups * views * heads
    told = {
        "queries": _coded(shape.queries, group),
        "view": view.astype(np.int16),
        "head": None if heads == 1 else np.asarray(shape.heads, dtype=np.int16)[head],
        "uniform": _lists(measured.uniform.transpose(2, 0, 1, 3).reshape(rows, keys)),
        "seen": _lists(measured.seen.transpose(2, 0, 1, 3).reshape(rows, keys)),
    }
    return _batch("views", _where(cell) | told, rows)


def _mass(cell: Cell, key: str, shape: Shape, measured: Measured) -> pa.RecordBatch:
    shares = membership(shape.classes, cell.text.text, cell.tokens, cell.text.spans)  # (classes, keys)
    mass = (measured.received.astype(np.float64) @ shares.T).transpose(2, 0, 1, 3)  # (groups, layers, heads, classes)
    expected = (measured.uniform.astype(np.float64) @ shares.T)[measured.view].transpose(2, 0, 1, 3)
    group, layer, head, name = np.indices(mass.shape).reshape(4, -1)
    told = {
        "queries": _coded(shape.queries, group),
        "layer": np.asarray(shape.layers, dtype=np.int16)[layer],
        "head": np.asarray(shape.heads, dtype=np.int16)[head],
        "token_class": _coded([*shape.classes, OTHER], name),
        "mass": mass.ravel(),
        "expected": np.broadcast_to(expected, mass.shape).ravel(),
    }
    return _batch("mass", _where(cell) | told, mass.size)


def _patterns(cell: Cell, key: str, shape: Shape, measured: Measured) -> pa.RecordBatch:
    axes = (len(shape.layers), len(shape.heads), len(PATTERNS), len(shape.queries), 3)
    held = np.zeros((0, *axes[1:])) if measured.patterns is None else measured.patterns
    by_group = held.astype(np.float64).transpose(3, 0, 1, 2, 4)  # (groups, layers, heads, patterns, 3)
    group, layer, head, pattern = np.indices(by_group.shape[:-1]).reshape(4, -1)
    attention, expected, having = by_group.reshape(-1, 3).T
    told = {
        "queries": _coded(shape.queries, group),
        "layer": np.asarray(shape.layers, dtype=np.int16)[layer],
        "head": np.asarray(shape.heads, dtype=np.int16)[head],
        "pattern": _coded(PATTERNS, pattern),
        "attention": attention,
        "expected": expected,
        "queries_with": having,
    }
    return _batch("patterns", _where(cell) | told, len(attention))


_BUILDERS = {
    "prompts": _prompts,
    "tokens": _tokens,
    "received": _received,
    "views": _views,
    "patterns": _patterns,
    "mass": _mass,
}
