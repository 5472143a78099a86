"""A query group is the tokens its name says."""

from __future__ import annotations

import pytest

from attnscope.errors import AttnscopeError
from attnscope.text.groups import GROUPS, QueryGroup, find_group, group_words, known_groups, rows_of
from attnscope.text.tokens import Token

TOKENS = [Token(place, place, "x", place, place + 1) for place in range(5)]
SEGMENTS = ["template", "question", "question", "answer", "answer"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [("last", (4,)), ("all", (0, 1, 2, 3, 4)), ("answer", (3, 4)), ("question", (1, 2)), ("template", (0,)), ("x", ())],
)
def test_a_group_has_the_positions_its_name_says(name: str, rows: tuple[int, ...]) -> None:
    assert rows_of(name, TOKENS, SEGMENTS) == rows


def test_a_prompt_without_tokens_has_no_last_one() -> None:
    assert rows_of("last", [], []) == rows_of("all", [], []) == ()


def test_captions_have_words_for_groups_and_segments() -> None:
    assert group_words("last") == "the last token"
    assert group_words("all") == "every token"
    assert group_words("question") == "the tokens of question"


def test_the_answer_is_a_group_only_where_there_is_one() -> None:
    assert "answer" not in known_groups(["question"])
    assert set(known_groups(["question", "answer"])) == {"last", "all", "answer", "writing", "question"}
    with pytest.raises(AttnscopeError, match=r"unknown query group 'lst'.*near: last"):
        find_group("lst", ["question"], "queries")


@pytest.mark.parametrize("rows", [[5], [-1], [1, 1]])
def test_a_group_with_positions_outside_the_prompt_is_refused(rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = QueryGroup(name="wrong", meaning="x", words="x", rows=lambda tokens, segments: rows)
    monkeypatch.setitem(GROUPS.members, "wrong", wrong)
    with pytest.raises(AttnscopeError, match="'wrong' gives positions"):
        rows_of("wrong", TOKENS, SEGMENTS)
