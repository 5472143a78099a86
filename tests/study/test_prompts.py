"""Prompts come from items, files and sets alike, and problems with them are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from attnscope.errors import AttnscopeError
from attnscope.studies import request_study
from attnscope.study.prompts import read_prompts
from attnscope.study.schema import Study

ROWS = [{"name": "a", "q": "What # is\r\nthis?", "number": 3}, {"name": "b", "q": 'Ünd 🙂, "this"', "number": 4}]


def study(**prompts: Any) -> Study:
    return Study.model_validate({"models": ["m"], "prompts": prompts})


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_a_file_of_any_kind_gives_the_same_prompts(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"prompts{ending}"
    if ending == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")
    elif ending == ".csv":
        pl.DataFrame(ROWS).write_csv(path)
    else:
        pl.DataFrame(ROWS).write_parquet(path)
    made = read_prompts(
        study(file=path.name, id="name", fields={"question": "q"}, plain="{question} {number}"), tmp_path
    )
    assert [prompt.name for prompt in made.prompts] == ["a", "b"]
    assert [prompt.fields for prompt in made.prompts] == [
        {"question": row["q"], "number": str(row["number"])} for row in ROWS
    ]


def test_without_a_layout_every_field_is_a_segment_in_a_user_message() -> None:
    made = read_prompts(study(items=[{"a": "1", "b": "2"}]), Path())
    assert made.layouts.fields == ["a", "b"]
    assert [made.layouts.chosen(has_template=each).key for each in (True, False)] == ["chat", "plain"]


def test_a_count_takes_the_first() -> None:
    assert len(read_prompts(study(items=[{"a": str(i)} for i in range(9)], count=4), Path()).prompts) == 4
    assert len(read_prompts(study(set="blocks", count=7), Path()).prompts) == 7


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ({"file": "gone.jsonl"}, "there is no file of prompts 'gone.jsonl'"),
        ({"file": "x.txt"}, ".jsonl"),
        ({"set": "bloks"}, "near: blocks"),
        ({"items": [{"a": "1"}], "plain": "{b}"}, "has no 'b'"),
        ({"items": [{"a": [["1"]]}]}, "not text"),
        ({"items": [{"a": [{"text": "1", "role": ["x"]}]}]}, "not text.*a text as its role"),
        ({"items": [{"a": [{"text": "1", "role": {"x": 1}}]}]}, "not text"),
        ({"items": [{"a": [{"text": "1", "role": True}]}]}, "not text"),
        ({"items": [{"a": None}]}, "not text"),
        ({"items": [{"a": []}]}, "the list 'a' of prompt 0 is empty .*: at least one item"),
        ({"items": [{"a": float("nan")}]}, "not text"),
        ({"items": [{"a": "1"}], "fields": {"b": {"separator": ","}}, "plain": "{a}"}, "no prompt has 'b'"),
        ({"items": [{"a": "1", "n": "\ud800"}], "id": "n"}, "the name of prompt 0 contains an incomplete character"),
        ({"items": [{"a": [{"text": "1", "role": "\ud800"}]}]}, "'a' of prompt 0 contains an incomplete character"),
        ({"items": [{"inserted": "x"}]}, "can't be a segment"),
    ],
)
def test_what_is_wrong_is_reported(prompts: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(AttnscopeError, match=words):
        read_prompts(study(**prompts), tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.jsonl", '{"a": 1}\n{"a": ', "line 2 is not JSON"),
        ("x.jsonl", "[1]\n", "line 1 is not an object"),
        ("x.jsonl", f'{{"a": {"9" * 5000}}}', "line 1 is not JSON that can be read: Exceeds the limit"),
        ("x.jsonl", f'{{"a": {"[" * 100_000}', "line 1 is not JSON that can be read"),
        ("x.jsonl", "\n", "no prompts"),
        ("x.csv", "", "can't read"),
        ("x.parquet", "PAR1 no", "can't read"),
    ],
)
def test_a_damaged_file_is_reported(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AttnscopeError, match=words):
        read_prompts(study(file=name), tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": "1"}\n{"a": "2"}\n', encoding="utf-8-sig")
    made = read_prompts(study(file="x.jsonl"), tmp_path)
    assert [prompt.texts for prompt in made.prompts] == [{"a": "1"}, {"a": "2"}]


def test_without_a_layout_the_cluster_is_no_part_of_the_prompt() -> None:
    made = read_prompts(study(items=[{"a": "1", "topic": "x"}, {"a": "2", "topic": "x"}], cluster="topic"), Path())
    assert made.layouts.fields == ["a"]
    assert {prompt.cluster for prompt in made.prompts} == {"x"}


def test_numbers_beside_the_layout_are_text_as_they_are_in_it() -> None:
    made = read_prompts(study(items=[{"a": "1", "n": 12, "x": 0.5, "no": True, "empty": ""}], plain="{a}"), Path())
    assert made.prompts[0].beside == {"n": "12", "x": "0.5"}
    assert made.contents.fields == ["n", "x", "a"]


def test_what_an_edit_takes_from_beside_the_layout_is_part_of_what_a_run_depends_on(tmp_path: Path) -> None:
    keys = []
    for other in ("one", "two", "one"):
        file = tmp_path / "study.yaml"
        (tmp_path / "x.jsonl").write_text(json.dumps({"q": "Why?", "other": other}), encoding="utf-8")
        edits = "[none, {name: c, replace: {segment: q, with: {field: other}}}]"
        text = f"models: [m]\nprompts: {{file: x.jsonl, plain: '{{q}}'}}\nconditions: {edits}\n"
        file.write_text(text, encoding="utf-8")
        keys.append(request_study(str(file)).key)
    assert keys[0] == keys[2] != keys[1]
