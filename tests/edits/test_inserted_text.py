"""Text that an edit inserts is a segment for the edits after it: they can delete, move or cut it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.models.tokenization import Tokenization
from attnscope.runs.cells import Cell, CellMaker
from attnscope.study.consistency import problems, problems_with_prompts
from attnscope.study.prompts import read_prompts
from attnscope.study.schema import ModelSpec, Study
from tests.models import tiny
from tests.runs.conftest import CHAT

LAYOUTS: list[dict[str, Any]] = [{"plain": "{a} {list}\n{b}"}, {"chat": {"system": "{a}", "user": "{list}\n{b}"}}]


def study(edits: list[dict[str, Any]], **prompts: Any) -> Study:
    conditions = ["none", {"name": "x", "edits": edits}]
    return Study.model_validate({"models": ["m"], "prompts": prompts, "conditions": conditions})


def cells(edits: list[dict[str, Any]], **prompts: Any) -> tuple[Cell, Cell]:
    """The base prompt and the edited one, of a study without problems."""
    whole = study(edits, **prompts)
    listed = read_prompts(whole, Path())
    assert not list(problems(whole))
    assert not list(problems_with_prompts(whole, listed.layouts, listed.contents))
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    maker = CellMaker(whole, listed, ModelSpec(label="m", source="m"), Tokenization(tokenizer, "m"), None)
    base, edited = (maker.cell(condition, listed.prompts[0]) for condition in whole.conditions)
    return base, edited


words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Co", "Zl", "Zp"]), min_size=1, max_size=9).filter(
    str.strip
)
places = st.sampled_from(["a", "b", "list", "list.1", "list.2"])
sides = st.sampled_from(["before", "after"])


@given(words, words, st.lists(words, min_size=2, max_size=2), st.data(), st.sampled_from(LAYOUTS))
def test_inserted_and_deleted_again_the_prompt_is_the_base_prompt(
    a: str, b: str, items: list[str], data: st.DataObject, layout: dict[str, Any]
) -> None:
    inserts = [
        {"insert": {"text": data.draw(words)}, data.draw(sides): data.draw(places)}
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    base, edited = cells([*inserts, {"delete": "inserted"}], items=[{"a": a, "b": b, "list": items}], **layout)
    assert (edited.text, edited.tokens, edited.segments) == (base.text, base.tokens, base.segments)
    assert edited.text.origins.tolist() == base.text.origins.tolist()
    assert edited.alignment == base.alignment
    assert edited.alignment.base == tuple(range(len(base.tokens)))


ITEMS = [{"a": "Look.", "b": "Where?", "list": ["one", "two"]}]
INSERT = {"insert": {"text": "so it is"}, "before": "list"}


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        ({"move": "inserted", "after": "b"}, "Look. one\n\ntwo\nWhere?\nso it is\n"),
        ({"truncate": "inserted", "tokens": 2}, "Look. soone\n\ntwo\nWhere?"),
        ({"insert": {"text": "!"}, "after": "inserted", "separator": ""}, "Look. so it is\n!one\n\ntwo\nWhere?"),
        ({"swap": ["inserted", "a"]}, "so it is\n Look.one\n\ntwo\nWhere?"),
    ],
)
def test_other_edits_can_name_inserted_text_too(edit: dict[str, Any], text: str) -> None:
    assert cells([INSERT, edit], items=ITEMS, **LAYOUTS[0])[1].text.text == text


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([{"delete": "inserted"}], "the plain layout has no segment 'inserted'"),
        ([{"delete": "inserted"}, INSERT], "the plain layout has no segment 'inserted'"),
        ([{"delete": "a"}, {"move": "inserted", "after": "b"}], "the plain layout has no segment 'inserted'"),
        ([INSERT, {"delete": "inserted[role=x]"}], "no prompt has a 'inserted' with the role 'x'"),
        ([INSERT, {"insert": {"shuffle": "inserted"}, "before": "b"}], "the plain layout has no segment 'inserted'"),
    ],
)
def test_inserted_text_has_no_name_before_it_is_inserted(edits: list[dict[str, Any]], words: str) -> None:
    whole = study(edits, items=ITEMS, **LAYOUTS[0])
    listed = read_prompts(whole, Path())
    found = [*problems(whole), *problems_with_prompts(whole, listed.layouts, listed.contents)]
    assert found
    assert words in found[0].what
    assert found[0].at[:3] == ("conditions", 1, "edits")


def test_an_edit_that_finds_no_inserted_text_says_so() -> None:
    with pytest.raises(AttnscopeError, match="the prompt has no 'inserted'"):
        cells([INSERT, {"delete": "inserted"}, {"delete": "inserted"}], items=ITEMS, **LAYOUTS[0])
