"""Compares two runs by key and prints the largest difference of every column: python scripts/compare_runs.py ONE TWO

Either may be in the format before shards (received.parquet, views.parquet, patterns.parquet), which is read directly.
Exits with 1 if a key is in only one of them, a text differs, or a number differs by more than the tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from attnscope.analysis.run import Run
from attnscope.runs.export import exported

TOLERANCE = 5e-6
HEAD = ["queries", "layer", "head"]
KEYS = {
    "prompts": ["prompt"],
    "tokens": ["prompt", "position"],
    "mass": ["prompt", *HEAD, "measure", "token_class"],
    "heads": ["prompt", *HEAD, "measure"],
    "received": ["prompt", *HEAD],
}
LEFT_OUT = {"cell", "model", "condition"}
_NAMES = ("model", "condition", "queries", "segment", "token_class", "pattern", "measure")


class Source(Protocol):
    """A run in some format: its tables, side by side, with the columns of this version."""

    sides: list[tuple[str, str]]

    def table(self, name: str, model: str, condition: str) -> pl.DataFrame: ...


class CurrentRun:
    """A run in this version's format."""

    def __init__(self, path: Path) -> None:
        self.run = Run(path)
        self.sides = [(model, name) for model in self.run.models for name in self.run.conditions]

    def table(self, name: str, model: str, condition: str) -> pl.DataFrame:
        if name != "received":
            here = (pl.col("model") == model) & (pl.col("condition") == condition)
            return self.run.table(name).filter(here).collect()
        return _with_views(self._exported("received", model, condition), self._exported("views", model, condition))

    def _exported(self, table: str, model: str, condition: str) -> pl.DataFrame:
        batches = [
            exported(
                table,
                {"model": model, "condition": condition, "prompt": prompt},
                self.run.cells.shard(cell).labels(cell),
                self.run.cells.arrays(cell),
            )
            for prompt, cell in self.run.cells_of(model, condition).select("prompt", "cell").iter_rows()
        ]
        return _frame(pa.Table.from_batches(batches).unify_dictionaries())


class OldRun:
    """A run in the format before shards: numbers of heads are in received.parquet and patterns.parquet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sides = self._read("prompts").select("model", "condition").unique(maintain_order=True).rows()

    def _read(self, name: str) -> pl.DataFrame:
        frame = pl.read_parquet(self.path / f"{name}.parquet", memory_map=False)
        return frame.with_columns(pl.col(each).cast(pl.String) for each in _NAMES if each in frame.columns)

    def table(self, name: str, model: str, condition: str) -> pl.DataFrame:
        here = (pl.col("model") == model) & (pl.col("condition") == condition)
        if name == "heads":
            return self._heads(here)
        if name == "received":
            return _with_views(self._read("received").filter(here), self._read("views").filter(here))
        frame = self._read(name).filter(here)
        return frame.with_columns(measure=pl.lit("received")) if name == "mass" else frame

    def _heads(self, here: pl.Expr) -> pl.DataFrame:
        having = pl.col("queries_with")
        columns = ["prompt", *HEAD, "measure", "value", "expected", "defined"]
        patterns = self._read("patterns").filter(here).rename({"pattern": "measure"})
        patterns = patterns.with_columns(
            value=pl.when(having > 0).then(pl.col("attention") / having),
            expected=pl.when(having > 0).then(pl.col("expected") / having),
            defined=having,
        )
        entropy = (
            self._read("received")
            .filter(here, pl.col("entropy").is_not_null())
            .with_columns(
                measure=pl.lit("entropy"),
                value=pl.col("entropy").cast(pl.Float64),
                expected=pl.lit(None, dtype=pl.Float64),
                defined=pl.lit(1.0),
            )
        )
        return pl.concat([patterns.select(columns), entropy.select(columns)])


def opened(path: Path) -> Source:
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    return CurrentRun(path) if "version" in manifest else OldRun(path)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)  # noqa: S101
    return frame.with_columns(pl.col(each).cast(pl.String) for each in _NAMES if each in frame.columns)


def _with_views(received: pl.DataFrame, views: pl.DataFrame) -> pl.DataFrame:
    """Join what every head's queries see to what its keys receive; views are numbered differently in each format."""
    on = ["prompt", "queries", "view"]
    columns = ["prompt", *HEAD, "received", "uniform", "seen"]
    alike = views.filter(pl.col("head").is_null()).drop("head", "model", "condition")
    apart = views.filter(pl.col("head").is_not_null()).drop("model", "condition")
    parts = [received.join(alike, on=on).select(columns), received.join(apart, on=[*on, "head"]).select(columns)]
    return pl.concat(parts)


@dataclass
class Difference:
    """The differences in one column of one table, over all sides."""

    rows: int = 0
    apart: int = 0
    """Rows whose texts, counts or lengths differ, or that have a number in one run only."""
    largest: float = 0.0
    where: str = ""


def differences(one: Source, two: Source) -> tuple[dict[tuple[str, str], Difference], list[str]]:
    """Differences by table and column; and what is in only one of the runs."""
    by_column: dict[tuple[str, str], Difference] = {}
    alone = [f"{side} is only in the first run" for side in one.sides if side not in two.sides]
    alone += [f"{side} is only in the second run" for side in two.sides if side not in one.sides]
    for model, condition in (side for side in one.sides if side in two.sides):
        for table, keys in KEYS.items():
            first, second = (each.table(table, model, condition) for each in (one, two))
            for frame, other, which in ((first, second, "first"), (second, first, "second")):
                rest = frame.join(other, on=keys, how="anti")
                if len(rest):
                    alone.append(f"{table}, {model}, {condition}: {len(rest)} rows are only in the {which} run")
                if frame.select(keys).is_duplicated().any():
                    alone.append(f"{table}, {model}, {condition}: keys occur twice in the {which} run")
            both = first.join(second, on=keys, suffix=" of two")
            for column in first.columns:
                if f"{column} of two" in both.columns and column not in LEFT_OUT:
                    difference = by_column.setdefault((table, column), Difference())
                    _compare(both, column, keys, f"{model}, {condition}", difference)
    return by_column, alone


def _compare(both: pl.DataFrame, column: str, keys: list[str], side: str, difference: Difference) -> None:
    one, two = both[column], both[f"{column} of two"]
    difference.rows += len(both)
    if isinstance(one.dtype, pl.List) and one.dtype.inner in (pl.Float32, pl.Float64):
        same = one.list.len() == two.list.len()
        difference.apart += int((~same).sum())
        lengths = one.filter(same).list.len().to_numpy()
        apart = np.abs(_numbers(one.filter(same).explode()) - _numbers(two.filter(same).explode()))
        rows = np.repeat(np.flatnonzero(same.to_numpy()), lengths)
    elif one.dtype.is_float():
        first, second = _numbers(one), _numbers(two)
        difference.apart += int((np.isnan(first) != np.isnan(second)).sum()) if column != "expected" else 0
        apart, rows = np.abs(first - second), np.arange(len(both))
    else:
        difference.apart += int((one.ne_missing(two)).sum())
        return
    if len(apart) and np.nanmax(apart, initial=0.0) > difference.largest:
        place = int(np.nanargmax(apart))
        difference.largest = float(apart[place])
        labels = both.select(keys).row(int(rows[place]), named=True)
        difference.where = ", ".join([side, *(f"{key} {label}" for key, label in labels.items())])


def _numbers(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def lines(by_column: dict[tuple[str, str], Difference], alone: list[str]) -> Iterator[str]:
    yield f"{'table':10}{'column':16}{'rows':>10}{'differ':>8}  largest difference"
    for (table, column), each in by_column.items():
        place = f"  at {each.where}" if each.where else ""
        yield f"{table:10}{column:16}{each.rows:>10}{each.apart:>8}  {each.largest:.2e}{place}"
    yield from alone


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", type=Path)
    parser.add_argument("two", type=Path)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    arguments = parser.parse_args(words)
    by_column, alone = differences(opened(arguments.one), opened(arguments.two))
    for line in lines(by_column, alone):
        print(line)  # noqa: T201
    same = not alone and all(each.apart == 0 and each.largest <= arguments.tolerance for each in by_column.values())
    print("the same" if same else f"NOT the same within {arguments.tolerance:g}")  # noqa: T201
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
