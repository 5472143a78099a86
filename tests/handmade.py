"""Runs looked at and changed by hand: shards as tables, tables put in place of others, manifests that fit them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from attnscope.analysis.run import Run
from attnscope.runs.columns import TABLES
from attnscope.runs.folder import RunFolder
from attnscope.runs.integrity import file_sha256
from attnscope.runs.manifest import TableFacts, read_manifest


def exported(run: Run | Path, table: str = "received") -> pl.DataFrame:
    """What the shards hold, as rows of `received` or `views` in the study's order."""
    opened = Run(run) if isinstance(run, Path) else run
    with tempfile.TemporaryDirectory() as folder:
        path = opened.export(table, Path(folder) / "table.parquet")
        frame = pl.read_parquet(path, memory_map=False)
    names = [name for name in ("model", "condition", "queries") if name in frame.columns]
    return frame.with_columns(pl.col(names).cast(pl.String))


def sealed(folder: Path, **changes: Any) -> None:
    """Write a manifest that fits the tables as they are now, with these changes."""
    manifest = read_manifest(folder)
    assert manifest is not None
    tables = {
        name: TableFacts(sha256=file_sha256(path), rows=pl.read_parquet(path, memory_map=False).height)
        for name in TABLES
        if (path := folder / f"{name}.parquet").is_file()
    }
    RunFolder(folder).write_manifest(manifest.model_copy(update={"tables": tables, **changes}))
