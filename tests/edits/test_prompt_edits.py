"""A condition is a list of edits made one after the other; what is written for a study stays the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from attnscope.models.load import look_up
from attnscope.runs.cells import CellMaker
from attnscope.studies import request_study
from attnscope.study.schema import ConditionSpec
from tests.runs.test_conditions import MODEL, cells

WRITTEN = {  # texts of the first prompts under all conditions, as every version so far wrote them
    "symbols": "da3770c7ed7159f9bbdd08e4c6426490348f057ebccfe3266568fbd213d4b9c8",
    "filler": "94e255642aa018a39df38f1d913b219b5dc52c288210bd1ed1745278dcbfaa82",
    "encoder": "24326f45be97bbb599f7617e018e8bc04dac0248cf587320ca35134dbc37fa9c",
    "filler-vs-sentence": "f5ad08763845dc5f75fe91035cf379fbcf0e2d01bb67d665917e6265b45e0f77",
}


@pytest.mark.model
def test_an_edit_can_stand_beside_the_name_or_in_a_list(tmp_path: Path) -> None:
    edit: dict[str, Any] = {"insert": {"sentence": "random"}, "tokens": 12, "before": "question"}
    flat, listed = ConditionSpec(name="x", **edit), ConditionSpec(name="x", edits=[edit])
    assert flat == listed
    assert ConditionSpec.model_validate(flat.model_dump(mode="json")) == flat
    texts = {
        cells(tmp_path, MODEL, each)[0][1].text.text for each in ({"name": "x", **edit}, {"name": "x", "edits": [edit]})
    }
    assert len(texts) == 1


@pytest.mark.model
def test_several_insertions_have_the_tokens_each_of_them_asks_for(tmp_path: Path) -> None:
    edits = [
        {"insert": {"repeat": "/"}, "tokens": 7, "before": "question"},
        {"insert": {"sentence": "random"}, "tokens": 11, "after": "question"},
        {"insert": {"sentence": "random"}, "tokens": 11, "after": "instruction"},
    ]
    made, dropped = cells(
        tmp_path,
        MODEL,
        {"name": "x", "edits": edits},
        {"name": "y", "insert": {"repeat": "-"}, "match": "x", "before": "question"},
    )
    assert not dropped
    assert [cell.inserted for cell in made] == [0, 29, 29]
    assert made[1].alignment.lost == made[0].alignment.lost
    spans = [made[1].text.text[span.start : span.end] for span in made[1].text.spans if span.segment == "inserted"]
    assert len(spans) == 3
    assert spans[0].strip() != spans[2].strip()  # each edit draws its own random text


def test_a_base_prompt_as_older_versions_stored_it_is_one_still() -> None:
    stored = {"name": "none", "label": None, "colour": None, "insert": None, "before": None, "after": None}
    condition = ConditionSpec.model_validate(
        {**stored, "separator": "\n", "times": None, "tokens": None, "match": None}
    )
    assert condition.is_base
    assert not condition.inserts


@pytest.mark.model
@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_what_is_written_for_a_study_stays_the_same(name: str) -> None:
    request = request_study(name, limit=4)
    texts = []
    for spec in request.study.models:
        model = look_up(spec.source)
        made, dropped = CellMaker(request.study, request.prompts, spec, model.tokenization, model.facts.context).make()
        assert not dropped
        texts += [(cell.condition, cell.prompt.number, cell.text.text, cell.ids) for cell in made]
    assert hashlib.sha256(repr(texts).encode()).hexdigest() == WRITTEN[name]
