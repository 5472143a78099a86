"""Where prompts are too few for a test, every page and caption says so, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import comparisons
from attnscope.analysis.run import Run
from attnscope.figures.prose import markdown
from attnscope.report.answer import answer
from attnscope.report.comparison_page import comparison_page
from tests.analysis.conftest import performed, study

TIER = "command"

FIGURES: list[dict[str, Any]] = [
    {"name": "change", "kind": "heatmap", "measure": "question", "difference": ["sentence", "filler"]},
    {"name": "why", "kind": "decomposition", "queries": "last"},
]


def with_clusters(model: Path, home: Path, clusters: int, prompts: int) -> Run:
    items = [
        {"intro": f"Look at number {number}.", "question": f"What is # {number}?", "topic": f"t{number % clusters}"}
        for number in range(prompts)
    ]
    changes = {
        "prompts": {"items": items, "chat": "{intro}\n{question}", "cluster": "topic"},
        "headline": [{"measure": "question", "difference": ["sentence", "filler"]}],
        "figures": FIGURES,
    }
    return performed(study([{"label": "one", "source": str(model)}], **changes), home)


@pytest.fixture(scope="module")
def five(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return with_clusters(model, tmp_path_factory.mktemp("five"), 5, 15)


@pytest.fixture(scope="module")
def seven(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return with_clusters(model, tmp_path_factory.mktemp("seven"), 7, 14)


def test_a_query_group_without_a_test_is_said_to_be_untested(five: Run) -> None:
    told = markdown(comparison_page([compare(each) for each in comparisons(five)]))
    assert "Queries all: not tested (5 clusters)." in told
    assert "0 of 0" not in told


@pytest.mark.parametrize("name", [each["name"] for each in FIGURES])
def test_captions_say_that_there_are_too_few_clusters(five: Run, name: str) -> None:
    assert "too few clusters for a test" in (five.path / "figures" / f"{name}.md").read_text(encoding="utf-8")


def test_an_untested_difference_has_its_direction_too(five: Run) -> None:
    told = answer(five)[0]
    assert '("filler" minus "sentence": ' in told
    assert "too few clusters for a test)." in told


def test_too_few_prompts_for_one_head_are_not_said_to_be_too_few_for_several(seven: Run) -> None:
    assert any("too few prompts for one of the 8 heads alone to be significant" in each for each in answer(seven))
    told = (seven.path / "figures" / "change.md").read_text(encoding="utf-8")
    assert "Change significantly (q < 0.05): too few prompts or clusters for one head alone to be significant." in told
