"""Rows of a declared table as Parquet; types and dictionary encoding come from its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnscope.runs.columns import columns_of, schema

COMPRESSION = "zstd"


def parquet_writer(table: str, path: Path) -> pq.ParquetWriter:
    """Names are dictionary-encoded; numbers are not, because hardly two are equal."""
    coded = [column.name for column in columns_of(table) if isinstance(column.type, pa.DictionaryType)]
    return pq.ParquetWriter(path, schema(table), compression=COMPRESSION, use_dictionary=coded)


def batch_of(table: str, columns: Mapping[str, Any], rows: int) -> pa.RecordBatch:
    """A batch of rows of a table; a single value is repeated for all rows."""
    arrays = []
    for column in columns_of(table):
        given = columns[column.name]
        if isinstance(given, pa.Array):
            arrays.append(given if given.type == column.type else given.cast(column.type))
        elif isinstance(given, (list, tuple, np.ndarray)):
            arrays.append(pa.array(given, type=column.type))
        else:
            arrays.append(_repeated(given, rows, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema(table))


def _repeated(value: Any, rows: int, kind: Any) -> pa.Array:
    if isinstance(kind, pa.DictionaryType):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([value]))
    return pa.repeat(pa.scalar(value, type=kind), rows)


def coded(names: Sequence[str], codes: NDArray[Any]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array([str(name) for name in names], type=pa.string())
    )
