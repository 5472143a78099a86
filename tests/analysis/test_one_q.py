"""The same difference has the same q and the same interval under every name and in every figure of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import Comparison, comparisons
from attnscope.analysis.levels import level
from attnscope.analysis.ranges import bounds_of
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.figures.write import figure_of
from attnscope.study.schema import FigureSpec
from tests.analysis.conftest import CONDITIONS, performed, study

TIER = "command"

NUMBERS = ["n", "difference", "low", "high", "p", "q", "smallest_p"]


@pytest.fixture(scope="module")
def named(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    rows = [
        {"intro": f"Look {'here ' * (n % 3)}at {n}.", "question": f"What # {n * 7}?" + "!" * (n % 4)} for n in range(9)
    ]
    content = study(
        [{"label": "one", "source": str(tiny)}],
        prompts={"items": rows, "chat": "{intro}\n{question}"},
        conditions=[*CONDITIONS, {"name": "asked", "replace": {"segment": "question", "with": {"text": "N/A"}}}],
        also={"whole intro": "segment:intro"},
        classes={
            "intro": "segment:intro",
            "question": "segment:question",
            "inserted": "segment:inserted",
            "marks": "special:",
        },
        quantities={
            "relevance": {"calibrated": "intro", "by": "asked"},
            "part": {"share": "intro", "of": ["intro", "question"]},
            "apart": {"contrast": "intro", "minus": "question"},
            "rate": {"rate": "intro", "above": 0.02},
        },
        measure={"queries": ["last", {"last": 4}, {"bins": {"of": "intro", "count": 3}, "name": "bin"}]},
    )
    return performed(content, tmp_path_factory.mktemp("named"))


def rows_of(run: Run, name: str, quantity: str, token_class: str) -> list[pl.DataFrame]:
    found = compare(next(each for each in comparisons(run) if each.name == f"{name}, one"))
    return [
        each.filter(queries="last", quantity=quantity, token_class=token_class) for each in (found.heads, found.overall)
    ]


def drawn(run: Run, kind: str, **options: Any) -> pl.DataFrame:
    return figure_of(run, FigureSpec.model_validate({"name": "f", "kind": kind, "queries": "last", **options})).table


@pytest.mark.parametrize(
    ("name", "quantity", "token_class"),
    [
        ("filler minus sentence", "taken", "inserted"),
        ("filler minus none", "relevance", "intro"),
        ("filler minus sentence", "relevance", "intro"),
    ],
)
def test_a_quantity_that_differs_like_a_class_has_its_numbers(
    named: Run, name: str, quantity: str, token_class: str
) -> None:
    for mine, theirs in zip(
        rows_of(named, name, quantity, "(all)"), rows_of(named, name, "mass", token_class), strict=True
    ):
        assert len(mine) == len(theirs) > 0
        assert theirs["q"].is_not_null().all()
        assert mine.select(NUMBERS).equals(theirs.select(NUMBERS))
        assert mine["two"].to_numpy() - mine["one"].to_numpy() == pytest.approx(mine["difference"].to_numpy())
    (cells,) = drawn(named, "heatmap", measure=quantity, difference=name.split(" minus ")[::-1]).partition_by("panel")
    assert cells.sort("layer", "head")["q"].to_list() == rows_of(named, name, "mass", token_class)[0]["q"].to_list()


def test_what_others_keep_of_what_a_class_takes_has_its_numbers_with_the_other_sign(named: Run) -> None:
    for mine, theirs in zip(
        rows_of(named, "filler minus sentence", "kept", "(all)"),
        rows_of(named, "filler minus sentence", "mass", "inserted"),
        strict=True,
    ):
        assert len(mine) == len(theirs) > 0
        assert mine["q"].is_not_null().all()
        assert mine.select("n", "p", "q", "smallest_p").equals(theirs.select("n", "p", "q", "smallest_p"))
        ends = mine.select("difference", "low", "high").to_numpy()
        np.testing.assert_array_equal(ends, -theirs.select("difference", "high", "low").to_numpy())
        assert mine["two"].to_numpy() - mine["one"].to_numpy() == pytest.approx(mine["difference"].to_numpy(), abs=2e-6)
        if "up" in mine.columns:
            assert (
                mine.select("up", "down", "rising", "falling").rows()
                == theirs.select("down", "up", "falling", "rising").rows()
            )


def test_a_set_with_the_tokens_of_a_class_has_its_numbers(named: Run) -> None:
    pair = (rows_of(named, "filler minus none", "mass", each) for each in ("intro", "whole intro"))
    for mine, theirs in zip(*pair, strict=True):
        assert mine.select(NUMBERS).equals(theirs.select(NUMBERS))


def test_what_is_0_by_construction_is_not_tested(named: Run) -> None:
    for table in rows_of(named, "asked minus none", "relevance", "(all)"):
        assert (table["two"] == 0).all()
        assert table["q"].is_null().all()
        assert table["low"].is_not_null().all()
    none = level(Side(named, "one", "asked"), "last", "relevance")
    assert none is not None
    assert (none.p, none.above, none.below) == (None, None, None)
    assert drawn(named, "heatmap", measure="relevance", conditions=["asked"])["q"].is_null().all()


def test_a_calibrated_level_is_the_difference_of_its_class(named: Run) -> None:
    pair = Comparison("condition", Side(named, "one", "asked"), Side(named, "one", "none"))
    found = compare(pair).overall.filter(queries="last", quantity="mass", token_class="intro").row(0, named=True)  # noqa: S106
    shown = level(Side(named, "one", "none"), "last", "relevance")
    assert shown is not None
    assert (shown.value, shown.low, shown.high, shown.p) == pytest.approx(
        (found["difference"], found["low"], found["high"], found["p"])
    )
    (other,) = rows_of(named, "asked minus none", "mass", "intro")[1].iter_rows(named=True)
    assert (shown.low, shown.high, shown.p) == pytest.approx((-other["high"], -other["low"], other["p"]))
    spread = drawn(named, "spread", measure="relevance", conditions=["none"])
    assert (spread["low"][0], spread["high"][0]) == (shown.low, shown.high)
    heads = compare(pair).heads.filter(queries="last", quantity="mass", token_class="intro")  # noqa: S106
    cells = drawn(named, "heatmap", measure="relevance", conditions=["none"]).sort("layer", "head")
    assert cells["q"].to_list() == heads.sort("layer", "head")["q"].to_list()


def test_a_bar_has_one_q_whatever_else_is_shown(named: Run) -> None:
    some = drawn(named, "bars", classes=["intro"], conditions=["none", "filler"], layers=[1])
    more = drawn(named, "bars", classes=["intro"], conditions=["none", "sentence", "filler"])
    columns = ["difference", "difference_low", "difference_high", "q"]
    mine = some.filter(bar="filler", group="Layer 1")
    assert mine["q"].is_not_null().all()
    assert mine.select(columns).equals(more.filter(bar="filler", group="Layer 1").select(columns))


def test_a_place_of_a_course_has_one_q_whatever_else_is_shown(named: Run) -> None:
    some = drawn(named, "trajectory", queries="bin", classes=["intro"], conditions=["none", "filler"])
    more = drawn(
        named, "trajectory", queries="bin", classes=["intro", "marks"], conditions=["none", "sentence", "filler"]
    )
    assert not any(name.startswith("\0") for name in (*some["panel"], *more["panel"]))
    columns = ["x", "difference", "difference_low", "q"]
    mine = some.filter(series="filler").sort("x").select(columns)
    theirs = more.filter(pl.col("panel") == "intro", pl.col("series") == "filler").sort("x").select(columns)
    assert mine["q"].is_not_null().any()
    assert mine.equals(theirs)


def test_intervals_end_where_a_quantity_can_lie(named: Run) -> None:
    for each in comparisons(named):
        found = compare(each)
        for table in (found.heads, found.overall):
            for (quantity,), rows in table.group_by("quantity"):
                low, high = bounds_of(named, f"{quantity}")
                if np.isfinite(high - low):
                    assert (rows["low"].drop_nulls() >= low - high).all()
                    assert (rows["high"].drop_nulls() <= high - low).all()
    assert bounds_of(named, "part") == bounds_of(named, "rate") == bounds_of(named, "taken") == (0, 1)
    assert bounds_of(named, "apart") == bounds_of(named, "relevance") == (-1, 1)
