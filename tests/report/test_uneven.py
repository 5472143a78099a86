"""Where prompts lack a class, or answers differ in length, every sentence says which prompts its numbers are over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import comparisons, placebo_for
from attnscope.analysis.multiverse import counted_masses, multiverse
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, masses
from attnscope.figures import sentences
from attnscope.figures.prose import markdown
from attnscope.report.answer import answer
from attnscope.report.comparison_page import comparison_page
from attnscope.report.focus import focus_of_statement, row_of
from attnscope.study.headline import HeadlineSpec
from tests.analysis.conftest import performed, study
from tests.tolerances import SUMMED

TIER = "command"
LACKING, PROMPTS = 4, 14  # prompts without a distractor, of all


def items() -> list[dict[str, Any]]:
    rows = []
    for number in range(PROMPTS):
        passages = [{"text": f"Gold {number} is here. ", "role": "gold"}]
        if number >= LACKING:
            passages.append({"text": f"Lead {number} {'#' * (number % 3)} is not. ", "role": "distractor"})
        long = number % 7 < 3  # 6 of 14 answers go on
        answer = f"It is {number}{' and so on it goes' * long}."
        rows.append({"question": f"Which {number}?", "passages": passages, "answer": answer})
    return rows


FIGURES: list[dict[str, Any]] = [
    {"name": "preference", "kind": "heatmap", "measure": "preference", "conditions": ["none"]},
    {"name": "lead", "kind": "heatmap", "measure": "lead", "conditions": ["none"]},
    {"name": "sum", "kind": "heatmap", "measure": ["gold", "lead"], "conditions": ["none"]},
    {"name": "dots", "kind": "spread", "classes": ["gold", "lead"]},
    {"name": "fading", "kind": "spread", "measure": "fading"},
    {"name": "course", "kind": "trajectory", "queries": "reply", "measure": "lead"},
    {"name": "many", "kind": "trajectory", "queries": "reply", "by": "layer", "classes": ["gold", "lead", "question"]},
    {"name": "why", "kind": "decomposition", "queries": "last", "classes": ["gold", "lead"]},
    {"name": "bars", "kind": "bars", "classes": ["gold", "lead"]},
    {"name": "change", "kind": "heatmap", "measure": "gold", "difference": ["no question", "none"]},
    {"name": "draws", "kind": "heatmap", "measure": "gold", "difference": ["filler", "sentence"]},
]


@pytest.fixture(scope="module")
def uneven(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    changes = {
        "prompts": {"items": items(), "chat": "{passages}\n{question}", "answer": {"field": "answer"}},
        "conditions": [
            "none",
            {"name": "filler", "insert": {"repeat": "/"}, "tokens": 12, "before": "question"},
            {
                "name": "sentence",
                "insert": {"sentence": "random"},
                "match": "filler",
                "before": "question",
                "control": "redraw",
            },
            {"name": "no question", "replace": {"segment": "question", "with": {"text": "N/A"}}},
        ],
        "classes": {
            "gold": {"segment": "passages[role=gold]", "label": "Gold, if any"},
            "lead": {"segment": "passages[role=distractor]", "label": "Lead"},
            "question": "segment:question",
            "sign": {"characters": "#", "label": "Sign"},
        },
        "quantities": {
            "preference": {"contrast": "gold", "minus": "lead", "label": "Gold minus lead (all tokens)"},
            "fading": {"decay": "gold", "over": "reply", "label": "Fading"},
            "beyond": {"calibrated": "gold", "by": "none", "label": "Beyond itself"},
        },
        "measure": {"queries": ["last", "writing", {"each": "writing", "name": "reply"}]},
        "headline": [
            {"measure": "preference", "queries": "writing"},
            {"measure": "preference", "queries": "writing", "conditions": ["none", "no question"]},
            {"measure": "gold", "over": "reply"},
            {"measure": "gold", "queries": "writing", "difference": ["no question", "none"]},
            {"measure": "fading", "difference": ["none", "sentence"]},
            {"measure": "beyond", "conditions": ["none"]},
        ],
        "figures": FIGURES,
    }
    return performed(study([{"label": "one", "source": str(model)}], **changes), tmp_path_factory.mktemp("uneven"))


def received(run: Run, token_class: str, queries: str) -> pl.DataFrame:
    """prompt, value: the mean over heads of a class's mass, of the prompts that have it."""
    rows = run.table("mass").collect().with_columns(pl.col("condition", "queries", "token_class").cast(pl.String))
    mine = rows.filter(condition="none", queries=queries, token_class=token_class)
    means = mine.group_by("prompt").agg(value=pl.col("mass").mean(), expected=pl.col("expected").mean())
    return means.filter(pl.col("expected") > 0).sort("prompt")


def reading(run: Run, name: str) -> str:
    return (run.path / "figures" / f"{name}.md").read_text(encoding="utf-8")


def test_the_parts_of_a_contrast_are_those_of_its_own_prompts_and_subtract(uneven: Run) -> None:
    gold, lead = (received(uneven, name, "writing") for name in ("gold", "lead"))
    assert (len(gold), len(lead)) == (PROMPTS, PROMPTS - LACKING)
    both = gold.join(lead, on="prompt", suffix="_lead")
    parts = [sentences.number(both[column].mean()) for column in ("value", "value_lead")]  # type: ignore[arg-type]
    told = answer(uneven)[0]
    assert f"Received: Gold, if any {parts[0]}; and Lead {parts[1]}." in told
    found = re.search(r"is (0\.\d+) \(95 %", told)
    assert found is not None
    assert float(parts[0]) - float(parts[1]) == pytest.approx(float(found[1]), abs=1.1e-4)


def test_the_parts_of_several_conditions_say_which_they_are_of(uneven: Run) -> None:
    told = answer(uneven)[1]
    assert 'Received with "none": Gold, if any ' in told
    assert 'Received with "no question": Gold, if any ' in told


def test_a_difference_has_the_direction_that_the_study_asks_for(uneven: Run) -> None:
    rows = pl.read_csv(uneven.path / "comparisons" / "classes.csv", infer_schema_length=None).filter(
        pl.col("token_class") == "gold", comparison="no question minus none, one", quantity="mass", queries="writing"
    )
    (row,) = rows.iter_rows(named=True)
    asked = HeadlineSpec.model_validate(
        {"measure": "gold", "queries": "writing", "difference": ["no question", "none"]}
    )
    focus = focus_of_statement(uneven, asked)
    assert focus is not None
    turned = row_of(focus.comparisons[0], "writing", "gold")
    assert turned is not None
    assert turned["difference"] == pytest.approx(-row["difference"])
    assert [turned["low"], turned["high"]] == pytest.approx([-row["high"], -row["low"]])
    assert (turned["up"], turned["down"], turned["q"]) == (row["down"], row["up"], pytest.approx(row["q"]))
    told = next(each for each in answer(uneven) if each.startswith("Attention on Gold, if any from"))
    way = "lower" if row["difference"] > 0 else "higher"
    assert f'is {way} in the base prompt than with "no question", by {sentences.number(abs(row["difference"]))}' in told


def test_a_difference_that_can_not_be_shown_says_what_is_subtracted(uneven: Run) -> None:
    told = next(each for each in answer(uneven) if each.startswith("No difference in Fading"))
    values = {}
    for name in ("none", "sentence"):
        rows = pl.read_csv(uneven.path / "figures" / "fading.csv").filter(series=name)
        values[name] = dict(rows.select("prompt", "value").iter_rows())
    both = [
        values["sentence"][prompt] - value for prompt, value in values["none"].items() if prompt in values["sentence"]
    ]
    assert f'("sentence" minus the base prompt: {sentences.number(sum(both) / len(both))}, ' in told


def test_a_quantity_of_a_whole_series_is_not_said_to_be_from_one_group(uneven: Run) -> None:
    assert 'Attention from all groups of "reply", all layers and all heads' in reading(uneven, "fading")
    assert any('Fading (from all groups of "reply")' in each for each in answer(uneven))


def test_a_label_with_brackets_shares_them_with_the_queries(uneven: Run) -> None:
    assert answer(uneven)[0].startswith("Gold minus lead (all tokens; from the tokens that write the answer) is ")


def test_a_course_that_ends_before_its_series_says_so(uneven: Run) -> None:
    rows = pl.read_csv(uneven.path / "figures" / "many.csv", infer_schema_length=None)
    counts = dict(rows.filter(series="none", panel="Layer 0, Gold, if any").select("at", "n").iter_rows())
    reached = [at for at, n in counts.items() if 2 * n >= max(counts.values())]
    assert reached[-1] != list(counts)[-1]
    why = f"the last that at least half of the prompts reach: {counts[reached[-1]]} of {PROMPTS}"
    assert any(f"({reached[-1]}, {why})" in each for each in answer(uneven))
    assert not any("the first that at least half" in each for each in answer(uneven))


def test_a_placebo_is_shown_only_where_something_random_is_compared(uneven: Run) -> None:
    told = answer(uneven)
    assert not any("lacebo" in each for each in told)
    assert "placebo" not in reading(uneven, "change")
    assert "placebo: sentence, drawn twice" in reading(uneven, "draws")
    pairs = {frozenset((each.one.condition, each.two.condition)): placebo_for(each) for each in comparisons(uneven)}
    assert pairs[frozenset(("none", "no question"))] is None
    assert pairs[frozenset(("none", "filler"))] is None
    null = pairs[frozenset(("filler", "sentence"))]
    assert null is not None
    assert (null.one.condition, null.two.condition) == ("sentence", "sentence (placebo)")


@pytest.mark.parametrize("name", ["lead", "dots", "course", "why", "bars"])
def test_captions_count_the_prompts_without_a_class(uneven: Run, name: str) -> None:
    found = re.search(
        r"Prompts without a class are left out of its mean: (.*?) prompts have Lead\.", reading(uneven, name)
    )
    assert found is not None
    have = PROMPTS - LACKING
    every = f"{have} of {PROMPTS}", f"{have - 1} to {have} of {PROMPTS - 1} to {PROMPTS}"  # a sentence may not fit
    assert found[1] in every


def test_captions_of_quantities_and_sums_count_the_prompts_too(uneven: Run) -> None:
    have = PROMPTS - LACKING
    left_out = f"Prompts without a value are left out: {have} of {PROMPTS} have one."
    assert left_out in reading(uneven, "preference")
    as_none = f"A class that a prompt lacks counts as 0: {have} of {PROMPTS} prompts have Lead."
    assert f"n = {PROMPTS} prompts" in reading(uneven, "sum")
    assert as_none in reading(uneven, "sum")


def test_a_table_of_many_lines_is_short_and_gives_n_where_it_varies(uneven: Run) -> None:
    told = reading(uneven, "many")
    assert "Of 24 lines, the 12 whose last value is farthest" in told
    rows = [line for line in told.splitlines() if re.match(r"\| \*?Layer", line)]
    assert len(rows) == 12
    for row in rows:
        assert len(re.findall(r"\(n = \d+\) at reply \d+", row)) == 2
        assert " within prompts that have both" in row


def test_the_page_of_comparisons_says_which_comparison_a_number_of_prompts_is_of(uneven: Run) -> None:
    told = markdown(comparison_page([compare(each) for each in comparisons(uneven)]))
    assert "no question minus none, one: n = 10 to 14 prompts, paired by prompt" in told
    assert re.search(r"^- (?:.*; and )?sentence \(placebo\) minus sentence, one: n = ", told, re.MULTILINE)
    assert told.count("heads matched by number.") == 2
    assert "Class Sign excludes tokens that Lead claims." in told


def test_the_studys_own_way_to_count_has_the_numbers_of_the_comparison(uneven: Run) -> None:
    numbers = ["n", "difference", "low", "high", "p"]
    lead = []
    for each in comparisons(uneven):
        table = multiverse(each)
        usual = table.filter(share="characters", heads="mean", special="with").sort("queries", "token_class")
        overall = compare(each).overall.filter(quantity="mass")
        there = usual.select("queries", "token_class").join(overall, on=["queries", "token_class"])
        assert usual.select(numbers).equals(there.sort("queries", "token_class").select(numbers))
        lead += table.filter(pl.col("token_class") == "lead")["n"].to_list()
    assert max(lead) == PROMPTS - LACKING  # the others have none, however it is counted


def test_classes_are_counted_alike_in_the_table_and_in_ways_to_count(uneven: Run) -> None:
    by_class = masses(uneven, "one", "none", "last")
    counted = counted_masses(Side(uneven, "one", "none"), "last")[:, 0, 0]
    own = by_class.mass[..., [by_class.names.index(name) for name in uneven.classes]]
    assert np.isnan(own).any()
    np.testing.assert_allclose(counted, own, rtol=0, atol=SUMMED)


def test_what_is_the_same_in_every_prompt_is_said_to_be(uneven: Run) -> None:
    told = next(each for each in answer(uneven) if each.startswith("Beyond itself"))
    assert f"{PROMPTS} prompts; it is the same in every prompt, so there is no test)" in told


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"prompts": 5, "same": True}, "too few prompts for a test"),
        ({"prompts": 12, "clusters": 12, "same": True}, "it is the same in every prompt, so there is no test"),
        ({"prompts": 12, "clusters": 5}, "too few clusters for a test"),
        ({"prompts": 12, "clusters": 8}, "a few clusters have most of the prompts, so there is no test"),
        ({"prompts": 12}, "the clusters of prompts are too few or too unequal for a test"),
    ],
)
def test_a_missing_test_has_its_own_reason(given: dict[str, Any], why: str) -> None:
    assert sentences.untested(**given) == why
