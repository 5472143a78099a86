"""Runs looked at and changed by hand: shards as tables, tables put in place of others, manifests that fit them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from attnscope.analysis.run import Run
from attnscope.runs.columns import OF_INTERVENTIONS, OUTCOMES, TABLES, schema
from attnscope.runs.folder import RunFolder
from attnscope.runs.integrity import file_sha256
from attnscope.runs.manifest import TableFacts, read_manifest
from attnscope.study.schema import Study


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
        for name in (*TABLES, *OF_INTERVENTIONS)
        if (path := folder / f"{name}.parquet").is_file()
    }
    RunFolder(folder).write_manifest(manifest.model_copy(update={"tables": tables, **changes}))


def with_outcomes(
    run: Run,
    home: Path,
    interventions: Sequence[Any],
    rows: Iterable[Mapping[str, Any]],
    outcome: Mapping[str, Any] | None = None,
) -> Run:
    """A copy of a run whose study has these interventions, with a made-up table `outcomes`.

    Rows name at least prompt, intervention and logprob; the rest is that of an answer of one token without choices.
    """
    shutil.copytree(run.path, home, ignore=shutil.ignore_patterns("cached"))
    said = run.study.model_dump(mode="json") | {
        "interventions": [*interventions],
        "outcome": {"scores": ["logprob"], **(outcome or {})},
    }
    write_outcomes(home, rows, {"model": run.models[0], "condition": run.conditions[0]})
    sealed(home, study=Study.model_validate(said))
    return Run(home)


def write_outcomes(home: Path, rows: Iterable[Mapping[str, Any]], side: Mapping[str, str]) -> None:
    """side: the model and condition of rows that don't say."""
    usual = {**dict.fromkeys(each.name for each in OF_INTERVENTIONS[OUTCOMES]), **side}
    usual |= {"tokens": 1, "kl": 0.0, "exact": True, "edited": 1}
    table = pa.Table.from_pylist([{**usual, **row} for row in rows], schema=schema(OUTCOMES))
    pq.write_table(table, home / f"{OUTCOMES}.parquet")
