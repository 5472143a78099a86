"""Items of lists keep their separators whatever edits come one after the other, and messages keep their speakers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.models.tokenization import Tokenization
from attnscope.runs.cells import CellMaker
from attnscope.study.prompts import read_prompts
from attnscope.study.schema import ModelSpec, Study
from tests.models import tiny
from tests.runs.conftest import CHAT

ITEM = {
    "hint": "Hint.",
    "passages": [{"text": "One.", "role": "gold"}, "Two.", {"text": "Three.", "role": "gold"}],
    "question": "Which?",
}
INSERT = {"insert": {"text": "INS"}, "separator": ""}


def tokenization() -> Tokenization:
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    return Tokenization(tokenizer, "m")


def edited(*edits: Any, item: dict[str, Any] = ITEM, **layout: Any) -> str:
    """The text of a prompt after some edits, or why there is none."""
    fields = {"passages": {"separator": "|"}} if "passages" in item else {}
    prompts = {"items": [item], "fields": fields, **(layout or {"plain": "{hint} {passages} {question}"})}
    given_study = {"models": ["m"], "prompts": prompts, "conditions": ["none", {"name": "x", "edits": list(edits)}]}
    study = Study.model_validate(given_study)
    maker = CellMaker(study, read_prompts(study, Path()), ModelSpec(label="m", source="m"), tokenization(), None)
    cells, dropped = maker.make()
    return next((cell.text.text for cell in cells if cell.condition == "x"), dropped[0].reason if dropped else "")


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ([{"move": "passages", "after": "question"}], "Hint.  Which?\nOne.|Two.|Three."),
        ([{"move": "passages[role=gold]", "after": "question"}], "Hint. Two. Which?\nOne.|Three."),
        ([{"move": "passages.2", "before": "passages.1", "separator": "|"}], "Hint. Two.|One.|Three. Which?"),
        ([{"repeat": "passages"}], "Hint. One.|Two.|Three.\nOne.|Two.|Three. Which?"),
        ([{"repeat": "passages[role=gold]"}], "Hint. One.|Two.|Three.\nOne.|Three. Which?"),
        ([{"delete": "passages.1"}], "Hint. Two.|Three. Which?"),
        ([{"delete": "passages.2"}], "Hint. One.|Three. Which?"),
        ([{"delete": "passages.3"}], "Hint. One.|Two. Which?"),
        ([{"delete": "passages[role=gold]"}], "Hint. Two. Which?"),
        ([{"delete": "passages"}], "Hint.  Which?"),
        ([{**INSERT, "before": "passages.2"}, {"delete": "hint"}], " One.|INSTwo.|Three. Which?"),
        ([{**INSERT, "after": "passages.1"}, {"delete": "passages.3"}], "Hint. One.INS|Two. Which?"),
        ([{**INSERT, "before": "passages.2"}, {"delete": "passages.2"}], "Hint. One.|INSThree. Which?"),
        ([{**INSERT, "before": "passages.2"}, {"delete": "inserted"}], "Hint. One.|Two.|Three. Which?"),
        ([{"swap": ["passages.1", "question"]}, {"delete": "hint"}], " Which?|Two.|Three. One."),
        ([{"swap": ["passages.1", "question"]}, {"delete": "passages.1"}], "Hint. Which?|Two.|Three. "),
        ([{"repeat": "passages.1"}, {"delete": "hint"}], " One.\nOne.|Two.|Three. Which?"),
        ([{"order": {"of": "passages", "by": [3, 1, 2]}}, {"delete": "passages.1"}], "Hint. Three.|Two. Which?"),
    ],
)
def test_separators_stay_between_items_and_go_with_them(edits: list[Any], text: str) -> None:
    assert edited(*edits) == text


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 6), unique=True, max_size=5), st.permutations(range(1, 7)))
def test_whatever_is_deleted_in_whatever_order_the_rest_is_separated_once(gone: list[int], order: list[int]) -> None:
    item = {"passages": [f"P{number}." for number in range(1, 7)], "question": "Q"}
    edits = [{"order": {"of": "passages", "by": order}}, *({"delete": f"passages.{number}"} for number in gone)]
    left = [f"P{number}." for number in order if number not in gone]
    assert edited(*edits, item=item, plain="{passages} {question}") == f"{'|'.join(left)} Q"


MESSAGES = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "And?"},
]


@pytest.mark.parametrize(
    "edit", [{"move": "turn.1", "after": "turn.2"}, {"repeat": "turn.1"}, {"move": "turn", "after": "system"}]
)
def test_several_messages_are_not_put_into_one(edit: dict[str, Any]) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *MESSAGES]
    reason = edited(edit, item={"messages": messages}, chat="{messages}")
    assert "messages, so it can't be put in one place" in reason


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "tool", "content": "42"}, "message 3 has the role 'tool' of 'messages'"),
        ({"role": "assistant", "content": None}, "message 3 has no text of 'messages'"),
        ({"role": "user", "content": [{"type": "image"}]}, "message 3 has no text of 'messages'"),
    ],
)
def test_a_chat_that_can_not_be_read_is_left_out_and_the_others_are_measured(
    message: dict[str, Any], words: str
) -> None:
    items = [{"messages": MESSAGES}, {"messages": [*MESSAGES[:2], message]}]
    study = Study.model_validate({"models": ["m"], "prompts": {"items": items, "chat": "{messages}"}})
    maker = CellMaker(study, read_prompts(study, Path()), ModelSpec(label="m", source="m"), tokenization(), None)
    cells, dropped = maker.make()
    assert [cell.prompt.number for cell in cells] == [0]
    assert [each.prompt for each in dropped] == [1]
    assert words in dropped[0].reason


def test_a_list_of_thousands_of_items_is_found_again_in_a_chat() -> None:
    item = {"passages": [f"{number}" for number in range(3500)], "question": "Q"}
    text = edited({"delete": "passages.2"}, item=item, chat="{passages} {question}")
    assert "user\n0|2|3|" in text


def test_a_text_is_not_cut_to_fewer_tokens_than_a_character_has() -> None:
    item = {"question": "🙂🙂", "hint": "x"}
    layout = {"plain": "{hint}{question}"}
    assert "can't be cut to 2 tokens" in edited({"truncate": "question", "tokens": 2}, item=item, **layout)
    assert edited({"truncate": "question", "tokens": 4}, item=item, **layout) == "x🙂"


@pytest.mark.parametrize(
    "edit",
    [
        {"replace": {"segment": "question", "with": {"random_tokens": True}}, "tokens": 10**6},
        {"insert": {"repeat": "/"}, "tokens": 10**6, "before": "question"},
    ],
)
def test_more_tokens_than_the_context_are_refused_at_once(edit: dict[str, Any]) -> None:
    prompts = {"items": [{"question": "Q"}], "plain": "{question}"}
    study = Study.model_validate({"models": ["m"], "prompts": prompts, "conditions": [{"name": "x", **edit}]})
    maker = CellMaker(study, read_prompts(study, Path()), ModelSpec(label="m", source="m"), tokenization(), 128)
    (dropped,) = maker.make()[1]
    assert "more than the context of m" in dropped.reason
