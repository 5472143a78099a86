"""The answer is about what a study's headline names, and its numbers are those of the tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import comparisons
from attnscope.analysis.multiverse import multiverse, verdicts
from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.figures import sentences
from attnscope.report.answer import LIMIT, answer
from attnscope.report.comparison_page import comparison_page
from attnscope.report.focus import focus_of
from tests.analysis.conftest import performed, study

TIER = "command"

CHANGES: dict[str, Any] = {
    "quantities": {
        "preference": {"contrast": "question", "minus": "marks", "label": "Question minus marks"},
        "part": {"share": "question", "of": ["question", "marks"], "label": "Question's part"},
    },
    "measure": {"queries": ["last", {"bins": {"of": "question", "count": 2}, "name": "bin"}]},
    "headline": [
        "preference",
        {"measure": "question", "conditions": ["none", "filler", "sentence"]},
        {"measure": "question", "over": "bin"},
        {"measure": "part", "over": "bin"},
        {"measure": "part", "difference": ["sentence", "filler"]},
        {"measure": "question", "difference": ["sentence", "filler"]},
    ],
}


@pytest.fixture(scope="module")
def headed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return performed(study([{"label": "one", "source": str(model)}], **CHANGES), tmp_path_factory.mktemp("headline"))


def by_prompt(run: Run, token_class: str, queries: str, condition: str = "none") -> pl.DataFrame:
    """The mean over heads of a class's mass, one row per prompt."""
    rows = run.table("mass").collect().with_columns(pl.col("condition", "queries", "token_class").cast(pl.String))
    mine = rows.filter(condition=condition, queries=queries, token_class=token_class)
    return mine.group_by("prompt").agg(pl.col("mass", "expected").mean()).sort("prompt")


def mean(values: pl.Series) -> float:
    value = values.mean()
    assert isinstance(value, float)
    return value


def test_each_statement_of_the_headline_has_a_paragraph_in_its_order(headed: Run) -> None:
    words = answer(headed)
    starts = ["Question minus marks", "Attention on question from", "Attention on question", "Question's part"]
    assert [paragraph[: len(start)] for start, paragraph in zip(starts, words, strict=False)] == starts
    assert words[-1] == LIMIT


def test_a_contrast_is_given_with_both_of_its_sides(headed: Run) -> None:
    question, marks = (by_prompt(headed, name, "last")["mass"] for name in ("question", "marks"))
    paragraph = answer(headed)[0]
    assert f"is {sentences.number(mean(question - marks))} (95 % interval " in paragraph
    assert f"Received: question {sentences.number(mean(question))} and marks {sentences.number(mean(marks))}." in (
        paragraph
    )
    assert "tested against 0: p = " in paragraph


def test_the_heads_named_are_those_of_the_table(headed: Run) -> None:
    rows = headed.table("mass").collect().with_columns(pl.col("condition", "queries", "token_class").cast(pl.String))
    base = rows.filter(condition="none", queries="last")
    wide = base.pivot("token_class", index=["prompt", "layer", "head"], values="mass")
    heads = wide.group_by("layer", "head").agg(value=(pl.col("question") - pl.col("marks")).mean())
    top = heads.sort("value", descending=True).head(3)
    named = [f"{row['layer']}.{row['head']} ({sentences.number(row['value'])})" for row in top.iter_rows(named=True)]
    assert sentences.listed(named) in answer(headed)[0]


def test_levels_of_several_conditions_are_those_of_the_table(headed: Run) -> None:
    paragraph = answer(headed)[1]
    for condition in ("none", "filler", "sentence"):
        rows = by_prompt(headed, "question", "last", condition)
        times = mean(rows["mass"]) / mean(rows["expected"])
        value, under = sentences.number(mean(rows["mass"])), f'{times:#.2g} times uniform attention, with "{condition}"'
        assert re.search(rf"{value} \([^)]*\), {re.escape(under)}", paragraph)


def test_a_course_goes_from_the_first_group_to_the_last_and_a_share_is_not_tested(headed: Run) -> None:
    first, last = (by_prompt(headed, "question", f"bin {number}") for number in (1, 2))
    paragraph = answer(headed)[2]
    ends = f"from {sentences.number(mean(first['mass']))} (bin 1) to {sentences.number(mean(last['mass']))} (bin 2)"
    assert ends in paragraph
    uniform = f"from {sentences.number(mean(first['expected']))} to {sentences.number(mean(last['expected']))}"
    assert f"not tested: later queries see more tokens, and uniform attention goes {uniform}" in paragraph
    assert ", p " in answer(headed)[3]


def test_a_quantity_is_compared_with_the_numbers_of_the_comparison(headed: Run) -> None:
    classes = pl.read_csv(headed.path / "comparisons" / "classes.csv", infer_schema_length=None)
    row = classes.filter(
        pl.col("comparison") == "filler minus sentence, one", pl.col("quantity") == "part", pl.col("queries") == "last"
    ).row(0, named=True)
    paragraph = next(each for each in answer(headed)[4:] if "Question's part" in each)
    assert sentences.number(abs(row["difference"])) in paragraph.replace("-", "")
    assert sentences.rate(row["q"]) in paragraph


def test_the_page_of_comparisons_is_about_the_first_difference_of_the_headline(headed: Run) -> None:
    focus = focus_of(headed)
    assert focus is not None
    assert (focus.quantity, [each.name for each in focus.comparisons]) == ("part", ["filler minus sentence, one"])
    titles = [section.heading for section in comparison_page([compare(each) for each in comparisons(headed)]).sections]
    assert "Who carries it: part (queries: last)" in titles


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("preferense", ["headline.0", "preferense", "preference"]),
        ({"measure": "question", "over": "bins"}, ["headline.0.over", "bins", "bin"]),
        ({"measure": "question", "queries": "lost"}, ["headline.0.queries", "lost", "last"]),
        ({"measure": "question", "queries": "bin"}, ["headline.0.queries", "bin"]),
        ({"measure": "question", "conditions": ["nonne"]}, ["headline.0.conditions.0", "nonne", "none"]),
        ({"measure": "question", "difference": ["none", "one"]}, ["headline.0.difference.1", "one", "none"]),
        ({"measure": "question", "difference": ["none"]}, ["headline.0.difference"]),
        ({"measure": "question", "difference": ["none", "filler"], "over": "bin"}, ["headline.0", "either"]),
        ({"measure": "question", "over": "bin", "queries": "last"}, ["headline.0", "either"]),
    ],
)
def test_a_mistake_in_a_headline_is_named_with_its_place(
    model: Path, tmp_path: Path, entry: Any, words: list[str]
) -> None:
    changes = {**CHANGES, "headline": [entry]}
    with pytest.raises(AttnscopeError) as error:
        performed(study([{"label": "one", "source": str(model)}], **changes), tmp_path)
    for word in words:
        assert word in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("queries", ["last", None])
def test_a_statement_that_names_its_queries_does_not_depend_on_others(
    model: Path, tmp_path: Path, queries: str | None
) -> None:
    named = {} if queries is None else {"queries": queries}
    changes = {
        "measure": {"queries": ["last", "question"]},
        "headline": [{"measure": "question", "difference": ["sentence", "filler"], **named}],
    }
    run = performed(study([{"label": "one", "source": str(model)}], **changes), tmp_path)
    (comparison,) = [each for each in comparisons(run) if each.name == "filler minus sentence, one"]
    table = multiverse(comparison).filter(pl.col("token_class") == "question")
    assert set(table["queries"]) == {"last", "question"}
    mine = table if queries is None else table.filter(queries=queries)
    (want,) = verdicts(mine).iter_rows(named=True)
    told = f"it is reversed {want['flips']}." if want["flips"] else f"all {want['choices']} ways to count"
    assert told in " ".join(answer(run))


def test_a_difference_within_the_margin_is_said_to_be_smaller_than_it(model: Path, tmp_path: Path) -> None:
    changes = {"margin": 0.9, "headline": [{"measure": "question", "difference": ["filler", "sentence"]}]}
    run = performed(study([{"label": "one", "source": str(model)}], **changes), tmp_path)
    rows = pl.read_csv(run.path / "comparisons" / "classes.csv", infer_schema_length=None).filter(
        pl.col("token_class") == "question", comparison="filler minus sentence, one", queries="last", quantity="mass"
    )
    (row,) = rows.iter_rows(named=True)
    assert row["same_q"] < 0.05
    assert not row["sure"]
    size = f'"sentence" minus "filler": {sentences.number(-row["difference"])}'
    assert f"differs by less than the margin of 0.9 ({size}, 95 % interval " in answer(run)[0]
