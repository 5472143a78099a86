"""The script that compares two runs by key finds nothing between a run and itself, and the one number that differs."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from scripts.compare_runs import OldRun, main, opened

from attnscope.runs.columns import TABLES
from attnscope.studies import run_study
from tests.handmade import exported, sealed

TIER = "command"


@pytest.fixture
def folder(study_file: Path, tmp_path: Path) -> Path:
    text = study_file.read_text().replace("[entropy]", "[entropy, previous, local]")
    study_file.write_text(text)
    return run_study(str(study_file), tmp_path / "run", models=["one"]).path


def former(run: Path, home: Path) -> Path:
    """The same run as the version before would have written it, in its tables."""
    home.mkdir()
    (home / "manifest.json").write_text('{"versions": {"attnscope": "0.1.0"}}')
    for name in ("prompts", "tokens"):
        shutil.copy(run / f"{name}.parquet", home)
    pl.read_parquet(run / "mass.parquet").drop("measure").write_parquet(home / "mass.parquet")
    exported(run).write_parquet(home / "received.parquet")
    exported(run, "views").write_parquet(home / "views.parquet")
    heads = pl.read_parquet(run / "heads.parquet").with_columns(pl.col("measure").cast(pl.String))
    having = pl.col("defined")
    heads.filter(pl.col("measure") != "entropy").select(
        *("model", "condition", "prompt", "queries", "layer", "head"),
        pattern="measure",
        attention=(pl.col("value") * having).fill_null(0),
        expected=(pl.col("expected") * having).fill_null(0),
        queries_with=having,
    ).write_parquet(home / "patterns.parquet")
    return home


def test_a_run_is_the_same_as_itself_in_either_format_and_in_any_order(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), str(folder)]) == 0
    old = former(folder, tmp_path / "old")
    assert isinstance(opened(old), OldRun)
    for name in ("mass", "received", "patterns"):
        pl.read_parquet(old / f"{name}.parquet").reverse().write_parquet(old / f"{name}.parquet")
    capsys.readouterr()
    assert main([str(old), str(folder)]) == 0
    printed = capsys.readouterr().out
    for words in ("received  seen", "mass      expected", "heads     value", "the same"):
        assert words in printed


def test_what_differs_is_found_with_its_place(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    mass = pl.read_parquet(other / "mass.parquet", memory_map=False)
    here = (pl.int_range(pl.len()) == 700).cast(pl.Float64)
    mass.with_columns(mass=pl.col("mass") + 1e-5 * here).write_parquet(other / "mass.parquet")
    sealed(other)
    assert main([str(folder), str(other)]) == 1
    row = mass.row(700, named=True)
    place = f"{row['condition']}, prompt {row['prompt']}, queries {row['queries']}, layer {row['layer']}"
    assert f"1.00e-05  at one, {place}" in capsys.readouterr().out
    assert main([str(folder), str(other), "--tolerance", "1e-4"]) == 0
    for name in TABLES:
        frame = pl.read_parquet(other / f"{name}.parquet", memory_map=False)
        frame.filter(pl.col("prompt") != 1).write_parquet(other / f"{name}.parquet")
    sealed(other)
    assert main([str(folder), str(other), "--tolerance", "1e-4"]) == 1
    assert "rows are only in the first run" in capsys.readouterr().out
