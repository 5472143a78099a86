"""What a table says it was made from. Tables that were written together have the same mark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_NAME = b"attnscope"


def marked(schema: pa.Schema, mark: str) -> pa.Schema:
    return schema.with_metadata({_NAME: mark.encode()})


def mark_of(path: Path) -> str | None:
    """None if attnscope didn't write the table."""
    held: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    return held[_NAME].decode() if _NAME in held else None
