"""What an edit changes by itself is not tested: a class that it moves tokens into or out of, special tokens it adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import comparisons
from attnscope.analysis.insertion import class_tokens
from attnscope.analysis.run import Run
from attnscope.report.comparison_tables import facts
from tests.analysis.conftest import performed, study

TIER = "command"

ROWS = [{"word": "AB"[: 1 + (n < 7)], "rest": f" and then {'so ' * (n % 5)}on, {n}."} for n in range(14)]
"""Seven words of two tokens, seven of one: these the class `first` takes wholly."""


@pytest.fixture(scope="module")
def first(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    at = {"before": "word", "separator": ""}
    content = study(
        [{"label": "one", "source": str(tiny)}],
        prompts={"items": ROWS, "plain": "{word}{rest}"},
        conditions=[
            "none",
            {"name": "newline", "insert": {"text": "\n"}, **at},
            {"name": "start", "insert": {"text": "<s>"}, **at},
            {"name": "later", "insert": {"text": "!"}, "after": "rest", "separator": ""},
        ],
        classes={"first": "position:0", "word": "segment:word", "comma": ","},
        measure={"queries": ["rest", "last"]},
    )
    return performed(content, tmp_path_factory.mktemp("first"))


def with_q(run: Run, condition: str) -> set[str]:
    found = compare(next(each for each in comparisons(run) if each.two.condition == condition)).overall
    return set(found.filter(pl.col("q").is_not_null(), queries="rest", quantity="mass")["token_class"])


def test_a_class_that_an_insertion_moves_a_prompts_own_tokens_into_is_not_tested(first: Run) -> None:
    assert with_q(first, "newline") == {"comma", "other"}
    assert with_q(first, "later") == {"first", "word", "comma"}  # not `other`, which the text joins
    found = compare(next(each for each in comparisons(first) if each.two.condition == "newline"))
    word = found.overall.filter(queries="rest", quantity="mass", token_class="word")  # noqa: S106
    assert word["n"][0] == len(ROWS)  # prompts without it count as 0 on their side
    assert word["low"][0] is not None
    heads = found.heads.filter(queries="rest", quantity="mass", token_class="word")  # noqa: S106
    assert heads["q"].is_null().all()
    assert "word" not in set(found.overall.filter(quantity="redistribution")["token_class"])


def test_a_special_token_that_an_edit_puts_in_is_inserted(first: Run) -> None:
    assert with_q(first, "start") == with_q(first, "newline")
    tokens = first.table("tokens").filter(condition="start").collect()
    assert (tokens["segment"] == "inserted").sum() == len(ROWS)
    counts = class_tokens(first, "one", "start").filter(token_class="first")  # noqa: S106
    assert counts["inserted"][0] == 1


def test_the_smallest_p_is_that_of_the_class_that_most_prompts_have(first: Run) -> None:
    found = compare(next(each for each in comparisons(first) if each.two.condition == "later"))
    smallest = dict(found.overall.filter(queries="rest", quantity="mass").select("token_class", "smallest_p").rows())
    assert smallest["word"] == 2**-6
    assert smallest["comma"] == 2**-13
    rarest_first = found.overall.sort("n")
    assert not any("no p can be below" in each for each in facts(replace(found, overall=rarest_first)))
