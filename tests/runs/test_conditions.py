"""Every kind of insertion is what it says: its text, its place, its length in the model's own tokens."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from attnscope.edits.sources.fitting import exactly
from attnscope.edits.sources.sentence import Sentence
from attnscope.edits.sources.source import SourceContext
from attnscope.errors import AttnscopeError
from attnscope.models.load import look_up
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.manifest import Dropped
from attnscope.studies import request_study

QUESTION = "Which of the two is larger, and why do you think so?"


def cells(tmp_path: Path, model: str, *conditions: dict[str, Any], **more: Any) -> tuple[list[Cell], list[Dropped]]:
    item = {"instruction": "Answer in one word.", "question": QUESTION, "reply": " The second."}
    prompts = {"items": [item], "chat": "{instruction}\n\n{question}", **more}
    study = {"models": [model], "prompts": prompts, "conditions": ["none", *conditions]}
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(study), encoding="utf-8")
    order = request_study(str(file))
    found = look_up(model)
    return CellMaker(order.study, order.prompts, order.study.models[0], found.tokenization, found.facts.context).make()


MODEL = "smollm2-135m-instruct"
SOURCES: list[dict[str, Any]] = [
    {"repeat": "/"},
    {"repeat": " hm"},
    {"sentence": "random"},
    {"random_tokens": True},
    {"shuffle": "question"},
    {"shuffle": "question", "by": "characters"},
    {"text": "This has nothing to do with it, whatever it may be."},
]


@pytest.mark.model
@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("tokens", [1, 7, 55])
def test_an_insertion_has_exactly_the_tokens_asked_for(
    tmp_path: Path, source: dict[str, Any], where: str, tokens: int
) -> None:
    wanted = {"name": "edit", "insert": source, "tokens": tokens, where: "question"}
    made, dropped = cells(tmp_path, MODEL, wanted)
    if tokens == 1:  # a line end of its own leaves no room: said, not fudged
        assert dropped == [] or "can't make exactly 1 tokens" in dropped[0].reason
    else:
        assert not dropped
    for cell in made[1:]:
        assert cell.inserted == tokens
        before, _, after = cell.text.text.partition(cell.text.of("inserted"))
        assert before + after == made[0].text.text
        assert cell.alignment is not None
        assert not cell.alignment.remerged or len(cell.alignment.remerged) <= 2


@pytest.mark.model
def test_a_shuffled_copy_has_the_segments_words_and_a_text_is_itself(tmp_path: Path) -> None:
    made, _ = cells(
        tmp_path,
        MODEL,
        {"name": "words", "insert": {"shuffle": "question"}, "before": "question", "separator": ""},
        {"name": "text", "insert": {"text": "Hear, hear!"}, "after": "question", "separator": " "},
    )
    assert sorted(made[1].text.of("inserted").split()) == sorted(QUESTION.split())
    assert made[1].text.of("inserted").split() != QUESTION.split()
    assert made[2].text.of("inserted") == " Hear, hear!"


@pytest.mark.model
def test_random_text_is_the_same_again_and_another_under_another_seed(tmp_path: Path) -> None:
    wanted = {"name": "edit", "insert": {"sentence": "random"}, "tokens": 30, "before": "question"}
    first, again = (cells(tmp_path, MODEL, wanted)[0][1].text for _ in range(2))
    assert first == again
    other = dict(wanted, name="other")
    assert cells(tmp_path, MODEL, other)[0][1].text != first


@pytest.mark.model
def test_a_given_answer_follows_the_prompt(tmp_path: Path) -> None:
    made, _ = cells(tmp_path, MODEL, answer={"field": "reply"})
    assert made[0].text.text.endswith("assistant\n The second.")
    assert made[0].text.of("answer") == " The second."
    assert made[0].segments[-1] == "answer"


def test_a_count_that_no_draft_has_is_refused_with_the_nearest() -> None:
    def draft(units: int, attempt: int) -> str:
        return "ab" * units

    assert exactly(8, draft, len, "here") == "abababab"
    with pytest.raises(AttnscopeError, match=r"can't make exactly 7 tokens.*nearest is [68]"):
        exactly(7, draft, len, "here")


def test_chance_finds_what_one_draft_can_not() -> None:
    def draft(units: int, attempt: int) -> str:
        return "abc" * units + "x" * attempt

    assert len(exactly(8, draft, len, "here")) == 8


def test_sentences_of_any_length_can_be_made_where_words_and_full_stops_are_tokens() -> None:
    """Sentences of equal length would leave out each count at which a new one begins."""
    source, ground = Sentence(sentence="random"), SourceContext({}, [])

    def draft(units: int, attempt: int) -> str:
        return source.draft(units, Random(f"{attempt}"), ground)  # noqa: S311

    def count(text: str) -> int:
        return len(re.findall(r"\w+|[.]", text))

    for wanted in range(2, 61):
        assert count(exactly(wanted, draft, count, "here")) == wanted
