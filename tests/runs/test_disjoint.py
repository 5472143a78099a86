"""Sets that overlap are refused where a quantity would count a token twice; so is a prompt of which nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from attnscope.errors import AttnscopeError
from attnscope.report.write import report_run
from attnscope.studies import run_study
from attnscope.text.classes import OTHER, both_count
from attnscope.text.tokens import Token
from tests.analysis.conftest import performed, study
from tests.runs.conftest import save_tiny

TIER = "command"

TEXT = "ab 12c"
TOKENS = [Token(0, 1, "ab", 0, 2), Token(1, 2, " 12", 2, 5), Token(2, 3, "c", 5, 6)]
CLASSES = {"digits": "re:[0-9]", "late": "re:[0-9c]"}
SETS = {"one": "1", "two": "2", "not ones": "re:[^1]", "whole ones": "whole:1"}


@pytest.mark.parametrize(
    ("one", "two", "tokens"),
    [
        ("digits", "late", []),
        ("digits", OTHER, []),
        ("digits", "one", [1]),
        ("late", "one", []),  # `digits` claims it
        ("late", "not ones", [2]),
        (OTHER, "one", []),  # half of the token is other, another half the set
        (OTHER, "not ones", [0, 1]),
        ("one", "two", []),  # of one token, but not the same part of it
        ("one", "not ones", []),
        ("two", "not ones", [1]),
        ("whole ones", "two", [1]),
    ],
)
def test_two_sets_overlap_where_they_count_the_same_part_of_a_token(one: str, two: str, tokens: list[int]) -> None:
    for first, second in ((one, two), (two, one)):
        assert both_count(CLASSES, SETS, first, second, TEXT, TOKENS).nonzero()[0].tolist() == tokens


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "one", 1)


def small(model: Path, folder: Path, **changes: Any) -> Path:
    content = {
        "models": [{"label": "one", "source": str(model)}],
        "prompts": {"items": [{"c": "Oslo lies.", "q": "Who?"}, {"c": "Oslo 3.", "q": "Why?"}], "plain": "{c} {q}"},
        "conditions": ["none"],
        "classes": {"digits": "re:[0-9]", "q": "segment:q"},
        "also": {"c": "segment:c"},
    }
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(content | changes))
    return file


@pytest.mark.parametrize(
    "quantity",
    [{"share": "digits", "of": ["digits", "c"]}, {"lookback": "c", "new": "digits"}],
    ids=["share", "lookback"],
)
def test_a_quantity_of_sets_that_overlap_is_refused_before_anything_is_measured(
    tiny: Path, tmp_path: Path, quantity: dict[str, Any]
) -> None:
    file = small(tiny, tmp_path, quantities={"part": quantity})
    with pytest.raises(
        AttnscopeError, match=r"'(digits|c)' and '(digits|c)' overlap: .*quantities\.part: prompt 1"
    ) as no:
        run_study(file, tmp_path / "run")
    assert "\n" not in str(no.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"quantities": {"part": {"share": "q", "of": ["q", "c"]}}},
        {"quantities": {"apart": {"contrast": "c", "minus": "digits"}}},  # the rest of c: nothing counts twice
        {"quantities": {"part": {"share": "digits", "of": ["digits", "c"]}}, "without": ["re:[0-9]"]},
    ],
    ids=["disjoint", "contrast", "left out"],
)
def test_other_quantities_are_not_refused(tiny: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    run_study(small(tiny, tmp_path, **changes), tmp_path / "run", evidence="none")


def test_an_answer_in_which_sets_overlap_is_refused_too(tiny: Path, tmp_path: Path) -> None:
    prompts = {"items": [{"q": "Who?"}], "plain": "{q}", "answer": {"generate": 4}}
    quantities = {"part": {"share": "answer", "of": ["answer", "written"]}}
    changes = {"prompts": prompts, "also": {"written": "segment:answer"}, "classes": {"answer": "segment:answer"}}
    file = small(tiny, tmp_path, quantities=quantities, **changes)
    with pytest.raises(AttnscopeError, match="'answer' and 'written' overlap"):
        run_study(file, tmp_path / "run", evidence="none")
    assert not (tmp_path / "run").exists()


def test_a_study_that_leaves_nothing_is_refused(tiny: Path, tmp_path: Path) -> None:
    file = small(tiny, tmp_path, without=["segment:q", "segment:c", "segment:template", "special:"])
    with pytest.raises(AttnscopeError, match="'without' leaves out every token of the prompt"):
        run_study(file, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_without_tokens_has_its_own_reason(tiny: Path, tmp_path: Path) -> None:
    classes = {
        "look": "re:Look",
        "again": "re:Lo+k",
        "none": "re:Qx",
        "number": "re:[0-9]",
        "question": "segment:question",
    }
    content = study(
        [{"label": "one", "source": str(tiny)}],
        classes=classes,
        without=["re:[0-9]"],
        conditions=["none"],
        measure={"queries": ["intro"]},
    )
    run = performed(content, tmp_path)
    assert report_run(run.path).empty == {
        "again": "earlier classes claim all of its tokens",
        "none": "its rule matches nothing",
        "number": "'without' leaves out all of its tokens",
        "question": "all of its tokens come after the queries, or out of their reach",
    }
