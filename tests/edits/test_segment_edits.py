"""Edits of whole segments: what they write, and that every token that stays is known to be the same token."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.models.tokenization import Tokenization
from attnscope.runs.cells import Cell, CellMaker
from attnscope.study.file import parse_study, refuse_misfits
from attnscope.study.prompts import read_prompts
from attnscope.study.schema import ModelSpec, Study
from attnscope.text.classes import membership

PASSAGES: list[list[Any]] = [
    [{"text": "Rome lies on the Tiber.", "role": "gold"}, {"text": "Oslo has a harbour.", "role": "distractor"}],
    [{"text": "Bears sleep all winter.", "role": "distractor"}, {"text": "Swifts sleep in flight.", "role": "gold"}],
    ["Iron rusts.", "Gold does not.", "Tin was dear."],
]
ITEMS = [
    {"passages": passages, "question": question, "hint": "Think of rivers, birds and metals."}
    for passages, question in zip(PASSAGES, ("Which river?", "Which bird?", "Which metal?"), strict=True)
]
CHAT = {"system": "You answer briefly.", "user": "{passages}\n\nQuestion: {question}"}


def study(*conditions: Any, **prompts: Any) -> Study:
    layout = {} if "plain" in prompts or "chat" in prompts else {"chat": CHAT}
    return Study.model_validate(
        {"models": ["m"], "prompts": {"items": ITEMS, **layout, **prompts}, "conditions": ["none", *conditions]}
    )


def made(tokenization: Tokenization, study: Study) -> tuple[dict[tuple[str, int], Cell], list[str]]:
    """Cells by condition and prompt, and why others can't be made."""
    maker = CellMaker(study, read_prompts(study, Path()), ModelSpec(label="m", source="m"), tokenization, None)
    cells, dropped = maker.make()
    return {(cell.condition, cell.prompt.number): cell for cell in cells}, [each.reason for each in dropped]


@pytest.fixture(scope="module")
def tokenization(smollm2_tokenization: Tokenization) -> Tokenization:
    return smollm2_tokenization


def segments(cell: Cell) -> list[str]:
    return list(dict.fromkeys(span.segment for span in cell.text.spans if span.segment != "template"))


def test_lists_roles_and_messages_are_segments(tokenization: Tokenization) -> None:
    cells, dropped = made(tokenization, study())
    assert not dropped
    assert segments(cells["none", 0]) == ["system", "passages.1", "passages.2", "question"]
    assert segments(cells["none", 2]) == ["system", "passages.1", "passages.2", "passages.3", "question"]
    cell = cells["none", 1]
    rules = {"gold": "segment:passages[role=gold]", "first": "segment:passages[place=1]", "rest": "segment:passages"}
    shares = membership(rules, cell.text.text, cell.tokens, cell.text.spans)
    texts = ["".join(np.array([each.text for each in cell.tokens])[row > 0.5]) for row in shares]
    assert texts[0].strip() == "Swifts sleep in flight."
    assert texts[1].strip() == "Bears sleep all winter."
    np.testing.assert_allclose(shares.sum(0), 1)


def test_a_chat_of_many_turns_is_laid_out_by_the_template(tokenization: Tokenization) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        {"role": "assistant", "content": "Later."},
    ]
    whole = study(items=[{"messages": messages}], chat="{messages}", answer={"field": "messages"})
    cells, dropped = made(tokenization, whole)
    assert not dropped
    cell = cells["none", 0]
    assert segments(cell) == ["system", "turn.1.user", "turn.1.assistant", "turn.2.user", "answer"]
    rendered = tokenization.render([{"role": each["role"], "content": str(each["content"])} for each in messages[:3]])
    assert cell.text.text.startswith(rendered[: rendered.index("Hi.")])
    assert cell.text.of("answer") == "Later."
    dropped_turn, _ = made(
        tokenization, study({"name": "x", "delete": "turn.1"}, items=[{"messages": messages[:4]}], chat="{messages}")
    )
    assert segments(dropped_turn["x", 0]) == ["system", "turn.2.user"]
    assert dropped_turn["x", 0].text.text.count("<|im_start|>") == 3  # system, user and the answer to come


EDITS: dict[str, dict[str, Any]] = {
    "delete": {"delete": "passages[role=distractor]"},
    "replace": {"replace": {"segment": "question", "with": {"text": "N/A"}}},
    "move": {"move": "question", "before": "passages"},
    "swap": {"swap": ["passages.1", "question"]},
    "reversed": {"order": {"of": "passages", "by": "reversed"}},
    "shuffled": {"order": {"of": "passages", "by": "shuffled"}},
    "repeat": {"repeat": "question"},
    "truncate": {"truncate": "question", "tokens": 1},
}


def test_every_edit_writes_what_it_says(tokenization: Tokenization) -> None:
    cells, _ = made(tokenization, study(*({"name": name, **edit} for name, edit in EDITS.items())))

    def user(name: str, number: int = 0) -> str:
        text = cells[name, number].text.text
        return text[text.index("user\n") + 5 : text.index("<|im_end|>\n<|im_start|>assistant")]

    rome, oslo = "Rome lies on the Tiber.", "Oslo has a harbour."
    assert user("none") == f"{rome}\n\n{oslo}\n\nQuestion: Which river?"
    assert user("delete") == f"{rome}\n\nQuestion: Which river?"
    assert user("replace") == f"{rome}\n\n{oslo}\n\nQuestion: N/A"
    assert user("move") == f"Which river?\n{rome}\n\n{oslo}\n\nQuestion: "
    assert user("swap") == f"Which river?\n\n{oslo}\n\nQuestion: {rome}"
    assert user("reversed") == f"{oslo}\n\n{rome}\n\nQuestion: Which river?"
    assert user("reversed", 2).startswith("Tin was dear.\n\nGold does not.\n\nIron rusts.")
    assert user("repeat").endswith("Which river?\nWhich river?")
    assert user("truncate").endswith("Question: Which")


def test_tokens_that_stay_are_the_same_tokens(tokenization: Tokenization) -> None:
    cells, _ = made(tokenization, study(*({"name": name, **edit} for name, edit in EDITS.items())))
    for (name, number), cell in cells.items():
        base = cells["none", number]
        pairs = [(token, base.tokens[place]) for token, place in zip(cell.tokens, cell.alignment.base, strict=True)
                 if place is not None]  # fmt: skip
        assert all((one.id, one.text) == (two.id, two.text) for one, two in pairs), name
        matched = {two.position for _, two in pairs}
        lost = [base.segments[place] for place in range(len(base.tokens)) if place not in matched]
        if name in ("reversed", "shuffled"):
            assert not set(lost) - {"template"}  # passages move as a whole, separators are the template's
        if name == "delete":
            assert set(lost) <= {"passages.1", "passages.2", "template"}
        if name == "replace":
            assert set(lost) == {"question"}
            new = [token.text for token, place in zip(cell.tokens, cell.alignment.base, strict=True) if place is None]
            assert "".join(new).strip() == "N/A"


def test_edits_of_edits(tokenization: Tokenization) -> None:
    twice = {"swap": ["passages.1", "question"]}
    around = {"order": {"of": "passages", "by": "reversed"}}
    cells, dropped = made(
        tokenization,
        study({"name": "swap", "edits": [twice, twice]}, {"name": "order", "edits": [around, around]}),
    )
    assert not dropped
    for name in ("swap", "order"):
        for number in range(3):
            assert cells[name, number].text == cells["none", number].text
            assert cells[name, number].alignment.base == tuple(range(len(cells["none", number].tokens)))


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_deleted_and_inserted_again_the_text_is_the_same(tokenization: Tokenization, data: st.DataObject) -> None:
    words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=12)
    one, two, three = (data.draw(words.filter(str.strip)) for _ in range(3))
    items = [{"a": one, "b": two, "c": three}]
    edits = [{"delete": "b"}, {"insert": {"field": "b"}, "before": "c", "separator": ""}]
    whole = study({"name": "x", "edits": edits}, items=items, plain="{a}{b}{c}")
    cells, dropped = made(tokenization, whole)
    if dropped:  # a tokenizer may not have the characters
        return
    base, edited = cells["none", 0], cells["x", 0]
    assert edited.text.text.replace(" ", "") == base.text.text.replace(" ", "")
    shares = membership({"a": "segment:a", "b": "segment:b"}, edited.text.text, edited.tokens, edited.text.spans)
    np.testing.assert_allclose(shares.sum(0), 1)
    stays = {place for place in edited.alignment.base if place is not None}
    assert not stays & {token.position for token in base.tokens if base.segments[token.position] == "b"}


def test_text_of_other_prompts_shuffled_text_and_matched_lengths(tokenization: Tokenization) -> None:
    conditions = [
        {"name": "other", "replace": {"segment": "passages.1", "with": {"other_prompt": "passages"}}},
        {"name": "shuffled", "replace": {"segment": "question", "with": {"shuffled": "words"}}},
        {"name": "field", "replace": {"segment": "question", "with": {"field": "hint"}}},
        {"name": "random", "replace": {"segment": "question", "with": {"random_tokens": True}}},
        {"name": "same", "replace": {"segment": "passages.1", "with": {"sentence": "random"}}, "match": "replaced"},
    ]
    cells, dropped = made(tokenization, study(*conditions, chat={"user": "{passages}\n{question}\n{hint}"}))
    assert not dropped
    own = {item["text"] if isinstance(item, dict) else item for item in PASSAGES[0]}
    every = {item["text"] if isinstance(item, dict) else item for passages in PASSAGES for item in passages}
    assert cells["other", 0].text.of("passages.1") in every - own
    assert sorted(cells["shuffled", 0].text.of("question").split()) == ["Which", "river?"]
    assert cells["field", 0].text.of("question") == ITEMS[0]["hint"]
    for number in range(3):
        for name, segment in (("random", "question"), ("same", "passages.1")):
            counts = [cells[each, number].segments.count(segment) for each in ("none", name)]
            assert counts[0] == counts[1]
    again, _ = made(tokenization, study(*conditions, chat={"user": "{passages}\n{question}\n{hint}"}))
    assert all(again[place].text == cell.text for place, cell in cells.items())  # the same seed, the same text


def test_text_can_come_from_fields_that_the_layout_has_no_place_for(tokenization: Tokenization) -> None:
    conditions = [
        {"name": "hint", "insert": {"field": "hint"}, "before": "question"},
        {"name": "shared", "insert": {"field": "shared"}, "before": "question"},
        {"name": "renamed", "replace": {"segment": "question", "with": {"field": "clue"}}},
        {"name": "lacking", "insert": {"field": "hnt"}, "before": "question"},
    ]
    fields = {"shared": {"text": "Read with care."}, "clue": "hint"}
    cells, dropped = made(tokenization, study(*conditions, fields=fields))
    assert cells["hint", 0].text.of("inserted") == f"{ITEMS[0]['hint']}\n"
    assert cells["shared", 1].text.of("inserted") == "Read with care.\n"
    assert cells["renamed", 2].text.of("question") == ITEMS[2]["hint"]
    assert len(dropped) == 3
    assert all("no field 'hnt'" in reason and "hint" in reason for reason in dropped)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"edits": [{"delete": "passages"}, {"delete": "system"}, {"delete": "question"}]}, "Question"),
        ({"delete": "passages[role=gold]"}, "the prompt has no 'passages[role=gold]'"),
        ({"delete": "passages.3"}, "the prompt has no 'passages.3'"),
        ({"swap": ["passages", "question"]}, "parts of the prompt, so it has no single place"),
        ({"swap": ["question", "question"]}, "can't change places with itself"),
        ({"order": {"of": "question", "by": "reversed"}}, "has one item"),
        ({"order": {"of": "passages", "by": [2, 1]}}, "has 3 items, and the order names 2"),
        ({"move": "question", "after": "question"}, "next to itself"),
    ],
)
def test_what_a_prompt_can_not_have_done_to_it_is_said(
    tokenization: Tokenization, condition: dict[str, Any], words: str
) -> None:
    cells, dropped = made(tokenization, study({"name": "x", **condition}))
    if words == "Question":  # something is left
        assert cells["x", 0].text.text.count("Question:") == 1
        return
    assert any(words in reason for reason in dropped)
    assert all("): " in reason and "; " in reason for reason in dropped)  # where, what is allowed, what to do


def test_a_prompt_can_not_be_emptied(tokenization: Tokenization) -> None:
    _, dropped = made(tokenization, study({"name": "x", "delete": "question"}, plain="{question}"))
    assert len(dropped) == 3
    assert all("the edits leave nothing of the prompt" in reason for reason in dropped)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("classes: {x: 'segment:passages[role=golden]'}", "no prompt has a 'passages' with the role 'golden'"),
        ("classes: {x: 'segment:passages.9'}", "no prompt has the segment 'passages.9'"),
        ("classes: {x: 'segment:passages[place=9]'}", "no prompt has the segment 'passages[place=9]'"),
        ("classes: {x: 'segment:passages[rank=1]'}", "neither role=NAME nor place=NUMBER"),
        ("classes: {x: 'segment:passages[place=0]'}", "is not a place"),
        ("classes: {x: 'segment:quesion'}", "has no segment 'quesion'"),
        ("classes: {x: 'segment:question[role=gold]'}", "the role 'gold' (LINE): there are none"),
        ("measure: {queries: ['passages[role=golden]']}", "unknown query group"),
        ("conditions: [none, {name: y, delete: passages.9}]", "no prompt has the segment 'passages.9'"),
        ("conditions: [none, {name: y, truncate: 'passages[place=7]', tokens: 1}]", "'passages[place=7]'"),
        ("conditions: [none, {name: y, repeat: 'passages[role=golden]'}]", "with the role 'golden'"),
        ("conditions: [none, {name: y, order: {of: passages.3, by: reversed}}]", "the segment 'passages.3'"),
        ("conditions: [none, {name: y, swap: [passages.1, passages.3]}]", "the segment 'passages.3'"),
        ("conditions: [none, {name: y, move: question, before: passages.3}]", "the segment 'passages.3'"),
        ("conditions: [none, {name: y, insert: {repeat: /}, times: 2, before: 'passages[place=7]'}]", "[place=7]'"),
        ("conditions: [none, {name: y, insert: {other_prompt: passages.3}, before: question}]", "'passages.3'"),
        ("conditions: [none, {name: y, insert: {field: zz}, before: question}]", "no prompt has a field 'zz'"),
        ("conditions: [none, {name: y, replace: {segment: passages.3, with: {text: a}}}]", "the segment 'passages.3'"),
        (
            "conditions: [none, {name: y, replace: {segment: question, with: {field: zz}}}]",
            "a field 'zz' with some text",
        ),
        ("conditions: [none, {name: y, order: {of: passages, by: [true, 2]}}]", "true is not a whole number"),
        ("conditions: [none, {name: y, order: {of: passages, by: [1.0, 2.0]}}]", "1.0 is not a whole number"),
        ("conditions: [none, {name: y, delete: passges}]", "has no segment 'passges'"),
        ("conditions: [none, {name: y, order: {of: passages, by: [1, 1]}}]", "is not an order"),
        ("conditions: [none, {name: y, truncate: question}]", "'tokens' is missing"),
        ("conditions: [none, {name: y, swap: [question, question]}]", "can't change places with itself"),
        ("conditions: [none, {name: y, move: question, after: question}]", "can't be moved next to itself"),
        ("conditions: [none, {name: y, insert: {shuffle: passages.1}, before: question}]", "copies whole fields"),
        ("conditions: [none, {name: y, insert: {repeat: /}, times: 10000000, before: question}]", "100000"),
        ("conditions: [none, {name: y, replace: {segment: question, with: {tex: a}}}]", "tex"),
    ],
)
def test_mistakes_in_a_study_are_found_before_anything_runs(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    items = "[{passages: [{text: a, role: gold}, {text: b}], question: c}]"
    text = f"models: [m]\nprompts: {{items: {items}, plain: '{{passages}} {{question}}'}}\n{line}\n"
    path.write_text(text, encoding="utf-8")

    def read() -> None:
        parsed = parse_study(text, str(path))
        refuse_misfits(parsed, read_prompts(parsed, tmp_path), path)

    with pytest.raises(AttnscopeError) as caught:
        read()
    message = str(caught.value)
    place = re.search(r"(?<=\()[^()]*, line 3, [^()]*(?=\))", message)
    assert place is not None, message
    assert words.replace("LINE", place[0]) in message


def test_texts_shared_by_all_prompts_come_from_the_study(tokenization: Tokenization) -> None:
    whole = study(chat={"system": "{rules}", "user": "{question}"}, fields={"rules": {"text": "Be kind."}})
    cells, _ = made(tokenization, whole)
    assert {cells["none", number].text.of("rules") for number in range(3)} == {"Be kind."}
