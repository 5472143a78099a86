"""Tables are read by key: any order of rows gives the same numbers to the last bit, and nothing may be missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.analysis.dense import dense, token_rows
from attnscope.analysis.head_values import head_values
from attnscope.analysis.run import Run
from attnscope.analysis.sides import masses
from attnscope.errors import AttnscopeError
from attnscope.runs.columns import TABLES
from tests.analysis.test_cache import everything, same

AXES: dict[str, list[Any]] = {"prompt": [7, 2], "queries": ["last", "all"], "layer": [5, 0, 3]}


def rows() -> pl.DataFrame:
    """Value = 100 x prompt + 10 x place of the query group + layer."""
    made = [
        (prompt, queries, layer, 100.0 * prompt + 10.0 * place + layer)
        for prompt in AXES["prompt"]
        for place, queries in enumerate(AXES["queries"])
        for layer in AXES["layer"]
    ]
    return pl.DataFrame(made, schema=[*AXES, "value"], orient="row")


@given(st.permutations(range(12)), st.booleans())
def test_rows_in_any_order_are_the_same_array(order: list[int], coded: bool) -> None:
    frame = rows()[order]
    if coded:
        frame = frame.with_columns(pl.col("queries").cast(pl.Categorical))
    (found,) = dense(frame, AXES, ["value"], "here")
    assert found.shape == (2, 2, 3)
    assert found[0, 1].tolist() == [715.0, 710.0, 713.0]  # prompt 7, all; layers 5, 0, 3
    assert found[1, 0].tolist() == [205.0, 200.0, 203.0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda frame: frame[1:], "it has no row for prompt 7, queries last, layer 5"),
        (lambda frame: pl.concat([frame, frame[4:5]]), "it has 2 rows for prompt 7, queries all, layer 0"),
        (lambda frame: pl.concat([frame[1:], frame[4:5]]), "it has no row for prompt 7, queries last, layer 5"),
        (lambda frame: frame.with_columns(layer=pl.col("layer") + 1), "a row for layer 6, which the run does not have"),
        (lambda frame: frame.with_columns(queries=pl.lit("some")), "a row for queries 'some'"),
        (lambda frame: frame.with_columns(value=pl.lit(float("nan"))), "value of prompt 7, .* is not a number"),
        (lambda frame: frame.with_columns(value=pl.lit(float("inf"))), "value of prompt 7, .* is not a number"),
        (lambda frame: frame.with_columns(value=pl.lit(None, dtype=pl.Float64)), "is not a number"),
        (lambda frame: frame.with_columns(value=-pl.col("value") - 1), "is not between 0 and 1000"),
        (lambda frame: frame[:0], "it has no row for prompt 7"),
    ],
)
def test_what_is_missing_double_or_no_number_is_refused(
    change: Callable[[pl.DataFrame], pl.DataFrame], problem: str
) -> None:
    with pytest.raises(AttnscopeError, match=f"{problem}.*here"):
        dense(change(rows()), AXES, ["value"], "here", bounds=(0.0, 1000.0))


def shuffled(run: Run, home: Path, seed: int) -> Run:
    """A copy of a run with the rows of every table in another order, as a careless script would leave them."""
    shutil.copytree(run.path, home)
    for name in TABLES:
        frame = pl.read_parquet(home / f"{name}.parquet", memory_map=False)
        frame.sample(fraction=1.0, shuffle=True, seed=seed).write_parquet(home / f"{name}.parquet", row_group_size=97)
    return Run(home, verify=False)


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1000))
def test_shuffled_tables_give_the_same_numbers_to_the_last_bit(
    run: Run, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    other = shuffled(run, tmp_path_factory.mktemp("shuffled") / "run", seed)
    same(everything(other), everything(run))
    for name in TABLES:
        assert other.table(name).collect().equals(run.table(name).collect())


def test_shuffled_tables_are_noticed(run: Run, tmp_path: Path) -> None:
    home = shuffled(run, tmp_path / "run", 1).path
    for name in TABLES:
        with pytest.raises(AttnscopeError, match=f"table '{name}' was changed or damaged after it was written"):
            Run(home).table(name)


def changed(run: Run, home: Path, name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Run:
    shutil.copytree(run.path, home)
    frame = pl.read_parquet(home / f"{name}.parquet", memory_map=False)
    change(frame).write_parquet(home / f"{name}.parquet")
    return Run(home, verify=False)


FIRST = pl.int_range(pl.len()) == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda frame: frame[1:], "no row for prompt 0, queries last, layer 0, head 0, token_class question"),
        (lambda frame: pl.concat([frame[:1], frame]), "2 rows for prompt 0"),
        (lambda frame: frame.with_columns(mass=pl.when(FIRST).then(-0.1).otherwise("mass")), "is not between 0 and 1"),
        (lambda frame: frame.with_columns(mass=pl.when(FIRST).then(1.001).otherwise("mass")), "is not between 0 and 1"),
        (lambda frame: frame.with_columns(mass=pl.when(FIRST).then(np.nan).otherwise("mass")), "is not a number"),
        (lambda frame: frame.with_columns(expected=pl.when(FIRST).then(np.inf).otherwise("expected")), "not a number"),
    ],
)
def test_masses_that_cannot_be_are_refused_with_table_and_place(
    run: Run, tmp_path: Path, change: Callable[[pl.DataFrame], pl.DataFrame], problem: str
) -> None:
    other = changed(run, tmp_path / "run", "mass", change)
    with pytest.raises(AttnscopeError, match=rf"{problem}.*mass\.parquet: one, none") as refused:
        masses(other, "one", "none", "last")
    assert "\n" not in str(refused.value)


def test_tokens_that_are_missing_or_double_are_refused(run: Run, tmp_path: Path) -> None:
    for number, change in enumerate((lambda frame: frame[1:], lambda frame: pl.concat([frame[:1], frame]))):
        other = changed(run, tmp_path / f"run{number}", "tokens", change)
        with pytest.raises(AttnscopeError, match=rf"from prompt 0, position {number} on.*tokens\.parquet: one, none"):
            token_rows(other, "one", "none", ["text"])
    other = changed(run, tmp_path / "prompts", "prompts", lambda frame: pl.concat([frame, frame[3:4]]))
    with pytest.raises(AttnscopeError, match=r"several rows for one prompt.*prompts\.parquet: one, none, prompt 3"):
        masses(other, "one", "none", "last")


def test_a_value_that_should_be_there_is_missed(run: Run, tmp_path: Path) -> None:
    here = (pl.col("measure").cast(pl.String) == "previous") & (pl.col("prompt") == 2)
    other = changed(
        run,
        tmp_path / "run",
        "heads",
        lambda frame: frame.with_columns(value=pl.when(~here).then("value")),
    )
    with pytest.raises(AttnscopeError, match=r"value of prompt 2, layer 0, head 0 is missing.*heads\.parquet"):
        head_values(other, "one", "none", "all", "previous")


@pytest.mark.parametrize(
    ("table", "column"),
    [("mass", "mass"), ("mass", "condition"), ("tokens", "segment"), ("tokens", "position"), ("prompts", "cell")],
)
def test_a_column_that_is_missing_is_named_with_its_table(run: Run, tmp_path: Path, table: str, column: str) -> None:
    other = changed(run, tmp_path / "run", table, lambda frame: frame.drop(column))
    with pytest.raises(AttnscopeError, match=rf"it has no column '{column}' \(.*{table}\.parquet\)"):
        other.compare()
    with pytest.raises(AttnscopeError, match=rf"it has no column '{column}' \(.*{table}\.parquet\)"):
        other.table(table)


@pytest.mark.parametrize("table", ["prompts", "mass", "tokens", "heads"])
def test_rows_that_are_missing_are_noticed_in_every_table(run: Run, tmp_path: Path, table: str) -> None:
    condition = pl.col("condition").cast(pl.String) == "filler"
    gone = (pl.col("prompt") == 1) & (condition if table == "prompts" else True)
    other = changed(run, tmp_path / "run", table, lambda frame: frame.filter(~gone))
    with pytest.raises(AttnscopeError, match=rf"this table can't be used.*{table}\.parquet"):
        everything(other)


def test_what_is_no_table_is_refused(run: Run, tmp_path: Path) -> None:
    other = changed(run, tmp_path / "run", "mass", lambda frame: frame)
    (other.path / "mass.parquet").write_text("x")
    with pytest.raises(AttnscopeError, match=r"not a Parquet file.*mass\.parquet"):
        other.compare()
