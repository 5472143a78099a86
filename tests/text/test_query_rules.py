"""Query rules make the groups that their names say, from any prompt, and mistakes in them are named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.study.consistency import problems
from attnscope.study.schema import MeasureSpec, Study
from attnscope.text import patterns
from attnscope.text.query_rules import MOST, Group, Prompt, QueryRule, groups_of, in_order
from attnscope.text.segments import Span
from attnscope.text.tokens import Token

TEXT = "Ask 12?One two.\n\nThree 34.\n\nFour"
SPANS = (Span("question", 0, 7), Span("answer", 7, len(TEXT)))


def prompt(text: str = TEXT, spans: tuple[Span, ...] = SPANS, size: int = 1) -> Prompt:
    """Tokens of `size` characters, not over the border between segments."""
    ends = sorted({*range(size, len(text), size), *(span.start for span in spans), len(text)} - {0})
    starts = [0, *ends[:-1]]
    tokens = [
        Token(place, ord(text[start]), text[start:end], start, end)
        for place, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return Prompt(text, tokens, spans)


def queries(*entries: Any) -> list[str | QueryRule]:
    return MeasureSpec.model_validate({"queries": list(entries)}).queries


def texts(*entries: Any, of: Prompt | None = None) -> dict[str, str]:
    """The text of each group's tokens."""
    shown = of or prompt()
    groups = groups_of(queries(*entries), shown)
    return {group.name: "".join(shown.tokens[row].text for row in rows) for group, rows in groups.items()}


def test_each_token_bins_parts_and_last_tokens_are_groups_by_number() -> None:
    answer = TEXT[7:]
    each = texts("last", {"each": "answer"})
    assert each["token 1 of answer"] == "O"
    assert each[f"token {len(answer)} of answer"] == "r"
    steps = texts("last", {"split": {"of": "answer", "at": "\n\n"}, "name": "step"})
    assert steps == {"last": "r", "step 1": "One two.\n\n", "step 2": "Three 34.\n\n", "step 3": "Four"}
    bins = texts("last", {"bins": {"of": "question", "count": 3}})
    assert [bins[f"bin {number} of question"] for number in (1, 2, 3)] == ["Ask", " 1", "2?"]
    assert texts({"last": 3, "of": "question"})["last 3 tokens of question"] == "12?"
    assert texts({"last": 400})["last 400 tokens"] == TEXT
    assert texts({"match": "[0-9]+", "of": "answer"})["matches of [0-9]+ in answer"] == "34"
    items = texts("last", {"items": "answer"})
    assert items["item 1 of answer"] == answer


def test_writing_is_one_place_before_the_answer_and_rules_follow_it() -> None:
    assert texts("writing", "answer") == {"writing": TEXT[6:-1], "answer": TEXT[7:]}
    each = texts("last", {"each": "writing"})
    assert each["token 1 of writing"] == "?"  # the row that writes the first token
    steps = texts("last", {"split": {"of": "writing", "at": "\n\n"}})
    assert steps["part 2 of writing"] == "\nThree 34.\n"  # the rows that write the second part
    assert texts("last", {"match": "34", "of": "writing"})["matches of 34 in writing"] == " 3"


@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 6))
def test_bins_are_a_partition_in_order_and_of_nearly_one_size(length: int, count: int, size: int) -> None:
    shown = prompt("x" * length, (Span("question", 0, length),), size)
    groups = groups_of(queries("last", {"bins": {"of": "question", "count": count}}), shown)
    bins = [rows for group, rows in groups.items() if group.series]
    assert [row for rows in bins for row in rows] == list(range(len(shown.tokens)))
    assert len(bins) == min(count, len(shown.tokens))
    assert max(map(len, bins)) - min(map(len, bins)) <= 1


@given(st.text("ab\n", min_size=1, max_size=40), st.integers(1, 5))
def test_parts_are_a_partition_and_end_where_the_text_says(text: str, size: int) -> None:
    shown = prompt(text, (Span("question", 0, len(text)),), size)
    groups = groups_of(queries("last", {"split": {"of": "question", "at": "\n"}, "name": "line"}), shown)
    lines = [rows for group, rows in groups.items() if group.series]
    assert sorted(row for rows in lines for row in rows) == list(range(len(shown.tokens)))
    if size == 1:
        whole = ["".join(shown.tokens[row].text for row in rows) for rows in lines]
        assert whole == [
            part + "\n" * (place < text.count("\n"))
            for place, part in enumerate(text.split("\n"))
            if part or place < text.count("\n")
        ]


def test_groups_of_several_prompts_come_in_the_study_s_order() -> None:
    entries = queries("last", {"bins": {"of": "question", "count": 4}, "name": "bin"}, "all")
    some = [Group("all"), Group("bin 3", "bin", 3), Group("bin 1", "bin", 1), Group("last"), Group("bin 10", "bin", 10)]
    assert [each.name for each in in_order(entries, [*some, *some])] == ["last", "bin 1", "bin 3", "bin 10", "all"]


def test_a_study_of_series_alone_also_has_what_the_first_is_taken_from() -> None:
    assert MeasureSpec.model_validate({"queries": {"each": "answer"}}).groups == ["answer"]
    assert MeasureSpec.model_validate({"queries": [{"each": "answer"}, "last"]}).groups == ["last"]
    assert MeasureSpec.model_validate({"queries": [{"last": 4}]}).groups == ["last 4 tokens"]


def test_ten_thousand_groups_are_refused_before_anything_is_measured() -> None:
    text = "x" * 10_000
    with pytest.raises(AttnscopeError, match=rf"asks for 10,001 query groups.*at most {MOST:,}.*fewer, larger groups"):
        groups_of(queries("last", {"each": "question"}), prompt(text, (Span("question", 0, len(text)),)))
    with pytest.raises(ValueError, match="less than or equal to 1024"):
        queries({"bins": {"of": "answer", "count": 10_000}})


def test_a_pattern_that_never_ends_is_stopped_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.2)
    text = "a" * 60 + "b"
    with pytest.raises(AttnscopeError, match=r"query group takes too long.*match: \(a\|aa\).*0.2 seconds of computing"):
        groups_of(queries({"match": "(a|aa)+$"}), prompt(text, (Span("question", 0, len(text)),)))


def test_a_name_is_not_given_to_two_groups() -> None:
    (problem,) = problems(study({"last": 2, "name": "step 1"}, {"each": "question", "name": "step"}))
    assert problem.what == "'step 1' is a group of 'step' already"
    assert problem.at == ("measure", "queries", 0, "name")


def test_a_token_without_characters_goes_with_the_one_before_it() -> None:
    tokens = [Token(0, 1, "[CLS]", 0, 0, True), Token(1, 5, "A.", 0, 2), Token(2, 6, "B.", 2, 4)]
    shown = Prompt("A.B.", [*tokens, Token(3, 2, "[SEP]", 0, 0, True)], (Span("question", 0, 4),))
    rule = {"split": {"of": "all", "at": "."}, "name": "step"}
    groups = {group.name: rows for group, rows in groups_of(queries("last", rule), shown).items()}
    assert groups["step 1"] == (0, 1)
    assert groups["step 2"] == (2, 3)


def study(*entries: Any, **more: Any) -> Study:
    content = {"models": ["m"], "prompts": {"items": [{"question": "Where?"}], "plain": "{question}"}, **more}
    return Study.model_validate({**content, "measure": {"queries": list(entries)}})


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"each": "qestion"}, "unknown query group 'qestion'"),
        ({"each": "answer"}, "unknown query group 'answer' (prompts have no answer)"),
        ("writing", "unknown query group 'writing' (prompts have no answer)"),
        ({"bins": {"of": "passages[role=gold]", "count": 3}}, "unknown query group 'passages[role=gold]'"),
        ({"match": "[0-9]", "name": "all"}, "'all' is a query group or a segment already"),
        ({"match": "[0-9]", "name": "writing"}, "'writing' is a query group or a segment already"),
        ({"last": 3, "name": "question"}, "'question' is a query group or a segment already"),
        ({"last": 3, "name": "inserted"}, "'inserted' is a query group or a segment already"),
    ],
)
def test_a_rule_about_what_prompts_lack_is_a_problem_at_its_key(entry: Any, what: str) -> None:
    found = list(problems(study(entry, "last")))
    assert [each.what for each in found] == [what]
    assert found[0].at[:3] == ("measure", "queries", 0)


def test_two_rules_of_one_title_are_a_problem() -> None:
    twice = study({"each": "question"}, {"each": "question"}, "last")
    assert [each.what for each in problems(twice)] == ["'tokens of question' is listed twice"]
    assert not list(problems(study({"each": "question"}, {"each": "question", "name": "word"}, "last")))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"ech": "answer"}, "unknown key 'ech'"),
        ({"each": "answer", "last": 3}, "each and last are named at once"),
        ({"match": "[0-"}, "the pattern can't be read"),
        ({"last": 0}, "greater than or equal to 1"),
        ({"bins": {"of": "answer"}}, "count"),
        (7, "not a mapping"),
    ],
)
def test_a_rule_that_cannot_be_read_says_why(entry: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("[", r"\[")):
        queries(entry)
