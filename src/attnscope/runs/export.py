"""The large arrays as Parquet, on request: the shards' contents, one row per head and query group, or per view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnscope.measures.entropy import ENTROPY
from attnscope.records import RECEIVED, SEEN, UNIFORM, VIEW
from attnscope.runs.parquet import batch_of, coded
from attnscope.runs.shards import Labels

Arrays = Mapping[str, NDArray[Any]]


def exported(table: str, where: Mapping[str, Any], labels: Labels, arrays: Arrays) -> pa.RecordBatch:
    """The rows of one cell. where: its model, condition and prompt."""
    return {"received": _received, "views": _views}[table](where, labels, arrays)


def _received(where: Mapping[str, Any], labels: Labels, arrays: Arrays) -> pa.RecordBatch:
    by_group = arrays[RECEIVED].transpose(2, 0, 1, 3)  # (groups, layers, heads, keys)
    groups, layers, heads, keys = by_group.shape
    rows = groups * layers * heads
    group, layer, head = np.indices((groups, layers, heads)).reshape(3, -1)
    entropy = arrays.get(ENTROPY.name)
    columns = {
        "queries": coded(labels.queries, group),
        "layer": np.asarray(labels.layers, dtype=np.int16)[layer],
        "head": np.asarray(labels.heads, dtype=np.int16)[head],
        "view": arrays[VIEW].astype(np.int16)[layer],
        "received": _lists(by_group.reshape(rows, keys)),
        "entropy": None if entropy is None else entropy.transpose(2, 0, 1).ravel(),
    }
    return batch_of("received", {**where, **columns}, rows)


def _views(where: Mapping[str, Any], labels: Labels, arrays: Arrays) -> pa.RecordBatch:
    uniform, seen = arrays[f"{RECEIVED}{UNIFORM}"], arrays[SEEN]
    heads = max(uniform.shape[1], seen.shape[1])
    shape = (uniform.shape[0], heads, *uniform.shape[2:])  # (views, heads or 1, groups, keys)
    uniform, seen = (np.broadcast_to(each, shape).transpose(2, 0, 1, 3) for each in (uniform, seen))
    group, view, head = np.indices(uniform.shape[:3]).reshape(3, -1)
    columns = {
        "queries": coded(labels.queries, group),
        "view": view.astype(np.int16),
        "head": None if heads == 1 else np.asarray(labels.heads, dtype=np.int16)[head],
        "uniform": _lists(uniform.reshape(len(view), -1)),
        "seen": _lists(seen.reshape(len(view), -1)),
    }
    return batch_of("views", {**where, **columns}, len(view))


def _lists(rows: NDArray[Any]) -> pa.Array:
    """(rows, keys) -> one list per row, without copying each."""
    count, keys = rows.shape
    offsets = pa.array(np.arange(0, (count + 1) * keys, keys, dtype=np.int32)) if keys else None
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(rows, dtype=np.float32).ravel()))
