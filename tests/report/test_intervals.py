"""Intervals stay where their numbers can be: shares between 0 and 1, their differences between -1 and 1."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope.analysis.means import mean_over_prompts
from attnscope.analysis.run import Run
from attnscope.analysis.spread import cut_to_differences, cut_to_shares, is_cut

TIER = "command"


@given(st.lists(st.floats(0, 1), min_size=6, max_size=12))
def test_the_interval_of_a_share_is_inside_0_and_1_and_holds_the_mean(values: list[float]) -> None:
    frame = pl.DataFrame({"group": "a", "prompt": range(len(values)), "mass": values})
    means = mean_over_prompts(frame, ["group"], "mass", {prompt: prompt for prompt in range(len(values))})
    (row,) = cut_to_shares(means, "low", "high").iter_rows(named=True)
    assert 0 <= row["low"] <= row["mass"] + 1e-12
    assert row["mass"] - 1e-12 <= row["high"] <= 1
    (whole,) = means.iter_rows(named=True)
    moved = (whole["low"] < 0 < row["mass"]) or (whole["high"] > 1 > row["mass"])
    assert moved <= is_cut(*(pl.Series([row[name]]) for name in ("mass", "low", "high")))


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=1))
def test_the_interval_of_a_difference_is_inside_minus_1_and_1(ends: list[tuple[float, float]]) -> None:
    low, high = cut_to_differences(*np.array(ends).T)
    assert (np.abs(low) <= 1).all()
    assert (np.abs(high) <= 1).all()


@pytest.mark.parametrize("name", ["figures/*.csv", "comparisons/*.csv"])
def test_no_file_of_a_run_has_an_interval_that_leaves_its_bounds(reported: Run, name: str) -> None:
    seen = 0
    for path in reported.path.glob(name):
        table = pl.read_csv(path, infer_schema_length=None)
        if "quantity" in table.columns:
            table = table.filter(pl.col("quantity").is_in(["mass", "taken", "moved", "change"]))
        for low, high in (("low", "high"), ("total_low", "total_high"), ("difference_low", "difference_high")):
            if low in table.columns and table[low].dtype == pl.Float64:
                share = {"mass", "attention", "mean"} & set(table.columns) and low != "difference_low"
                ends = table.select(low, high).drop_nulls()
                inside = ends.select(pl.all().is_between(0 if share else -1, 1).all())
                assert inside.row(0) == (True, True), path
                seen += len(ends)
    assert seen
