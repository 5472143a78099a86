"""An entry with checkpoints stands for one model per checkpoint; mistakes are one line each, with the entry's line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from attnscope.errors import AttnscopeError
from attnscope.figures.validation import study_schema
from attnscope.study.checkpoints import models_of
from attnscope.study.file import parse_study
from attnscope.study.schema import ModelSpec, Study

REST = "\nprompts:\n  items: [{question: 'What?'}]\nclasses: {question: 'segment:question'}\n"


def folder(path: Path, kind: str = "adapter", *, step: int | None = None, weights: bool = True) -> Path:
    """A checkpoint by the names of its files."""
    path.mkdir(parents=True)
    names = {
        "adapter": ("adapter_config.json", "adapter_model.safetensors"),
        "model": ("config.json", "model.safetensors"),
    }
    config, weight = names[kind]
    (path / config).write_text("{}")
    if weights:
        (path / weight).write_text("")
    if step is not None:
        (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return path


def entry(**keys: Any) -> str:
    line = yaml.safe_dump({"label": "tuned", **keys}, default_flow_style=True, width=10**6).strip()
    return f"models:\n  - base\n  - {line}{REST}"


def models(text: str) -> list[ModelSpec]:
    return parse_study(text, "x.yaml").models


def test_a_pattern_makes_one_model_per_folder_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (1000, 200, 90):
        folder(tmp_path / f"checkpoint-{step}")
    (tmp_path / "checkpoint-notes.txt").write_text("not a folder")
    found = models(entry(checkpoints=f"{tmp_path}/checkpoint-*", colour="#112233", dtype="float32"))[1:]
    assert [each.label for each in found] == ["tuned step 90", "tuned step 200", "tuned step 1000"]
    assert [each.step for each in found] == [90, 200, 1000]
    assert {each.family for each in found} == {"tuned"}
    assert [each.source for each in found] == [str(tmp_path / f"checkpoint-{step}") for step in (90, 200, 1000)]
    assert {(each.colour, each.dtype, each.adapter) for each in found} == {("#112233", "float32", None)}


def test_with_a_source_the_training_begins_at_step_0_and_adapters_go_on_it(tmp_path: Path) -> None:
    folder(tmp_path / "checkpoint-5")
    zero, five = models(entry(source="org/name", checkpoints=f"{tmp_path}/checkpoint-*"))[1:]
    assert (zero.label, zero.step, zero.source, zero.adapter) == ("tuned step 0", 0, "org/name", None)
    assert (five.step, five.source, five.adapter) == (5, "org/name", str(tmp_path / "checkpoint-5"))
    folder(tmp_path / "checkpoint-0")
    again = models(entry(source="org/name", checkpoints=f"{tmp_path}/checkpoint-*"))[1:]
    assert [each.step for each in again] == [0, 5]  # the training's own step 0
    assert again[0].adapter is not None


def test_whole_models_take_a_missing_tokenizer_from_the_source(tmp_path: Path) -> None:
    folder(tmp_path / "a-10", "model")
    (folder(tmp_path / "a-20", "model") / "tokenizer.json").write_text("{}")
    zero, ten, twenty = models(entry(source="org/name", checkpoints=f"{tmp_path}/a-*"))[1:]
    assert (zero.tokenizer, ten.tokenizer, twenty.tokenizer) == (None, "org/name", None)
    assert (ten.source, twenty.source) == (str(tmp_path / "a-10"), str(tmp_path / "a-20"))


def test_the_trainers_own_count_goes_before_the_name(tmp_path: Path) -> None:
    folder(tmp_path / "best", step=70)
    folder(tmp_path / "checkpoint-7", step=30)
    (folder(tmp_path / "checkpoint-8") / "trainer_state.json").write_text("{broken")
    names = [str(tmp_path / name) for name in ("best", "checkpoint-7", "checkpoint-8")]
    assert [each.step for each in models(entry(checkpoints=names))[1:]] == [8, 30, 70]
    numbered = models(entry(checkpoints={3: names[0], 1: names[1]}))[1:]
    assert [(each.step, each.source) for each in numbered] == [(1, names[1]), (3, names[0])]


def test_revisions_of_a_model_on_the_hub() -> None:
    found = models(entry(source="org/name", revisions=["step1000", "stage1-step20-tokens4B", "main-3"]))[1:]
    assert [(each.step, each.revision) for each in found] == [
        (3, "main-3"),
        (20, "stage1-step20-tokens4B"),
        (1000, "step1000"),
    ]
    named = models(entry(source="org/name", revisions={143000: "main", 0: "0123abc"}))[1:]
    assert [(each.step, each.revision) for each in named] == [(0, "0123abc"), (143000, "main")]


def test_one_entry_may_stand_alone_and_the_study_is_the_same_after_it_was_stored(tmp_path: Path) -> None:
    folder(tmp_path / "checkpoint-5")
    study = parse_study("models: " + json.dumps({"label": "t", "checkpoints": f"{tmp_path}/c*"}) + REST, "x.yaml")
    assert [each.label for each in study.models] == ["t step 5"]
    (tmp_path / "checkpoint-5").rename(tmp_path / "gone")
    assert Study.model_validate(study.model_dump(mode="json")) == study


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"checkpoints": "nowhere/checkpoint-*"}, ["no folder matches 'nowhere/checkpoint-*'", "train first"]),
        ({"checkpoints": []}, ["there are no checkpoints"]),
        ({"checkpoints": 3}, ["3 are no checkpoints", "a pattern"]),
        ({"checkpoints": {"x": "a"}}, ["are no checkpoints"]),
        ({"checkpoints": ["nowhere/checkpoint-3"]}, ["there is no folder"]),
        ({"checkpoints": ["{}/empty-1"]}, ["is no checkpoint", "config.json"]),
        ({"checkpoints": ["{}/half-1"]}, ["has no weights", "half-written", "wait"]),
        ({"checkpoints": ["{}/whole-half-1"]}, ["has no weights"]),
        ({"checkpoints": ["{}/good-1", "{}/other-1"]}, ["are both of step 1"]),
        ({"checkpoints": ["{}/good-1", "{}/whole-2"]}, ["is an adapter and", "a whole model"]),
        ({"checkpoints": ["{}/last"]}, ["'last' has no step in it", "trainer_state.json", "{200: NAME"]),
        ({"checkpoints": ["{}/a1b2"]}, ["has 2 numbers in it"]),
        ({"checkpoints": ["{}/good-1"], "revisions": ["a1"]}, ["either checkpoints"]),
        ({"checkpoints": ["{}/good-1"], "adapter": "x"}, ["unknown key 'adapter'"]),
        ({"revisions": ["step1"]}, ["a model on the Hub"]),
        ({"revisions": ["0123456789abcdef0123456789abcdef01234567"], "source": "org/name"}, ["no step"]),
    ],
)
def test_a_mistake_is_one_line_that_names_the_entry(tmp_path: Path, keys: dict[str, Any], words: list[str]) -> None:
    for name in ("good-1", "other-1", "last", "a1b2"):
        folder(tmp_path / name)
    folder(tmp_path / "whole-2", "model")
    folder(tmp_path / "half-1", weights=False)
    folder(tmp_path / "whole-half-1", "model", weights=False)
    (tmp_path / "empty-1").mkdir()
    text = entry(**keys).replace("{}/", f"{tmp_path}/")
    with pytest.raises(AttnscopeError) as refusal:
        parse_study(text, "x.yaml")
    message = str(refusal.value)
    assert "\n" not in message
    assert "x.yaml, line 3, models.1" in message
    for word in words:
        assert word in message, message


def test_lines_of_what_follows_an_entry_are_still_right(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        folder(tmp_path / f"checkpoint-{step}")
    keys = json.dumps({"label": "tuned", "checkpoints": f"{tmp_path}/c*"})
    with pytest.raises(AttnscopeError, match=r"line 4, models\.2"):
        parse_study(f"models:\n  - base\n  - {keys}\n  - {{label: x, sorce: y}}{REST}", "x.yaml")
    with pytest.raises(AttnscopeError, match=r"occurs twice.*line 4, models\.2"):
        parse_study(f"models:\n  - base\n  - {keys}\n  - {{label: tuned step 2, source: y}}{REST}", "x.yaml")
    with pytest.raises(AttnscopeError, match=r"also a training's name.*line 4"):
        parse_study(f"models:\n  - base\n  - {keys}\n  - {{label: tuned, source: y}}{REST}", "x.yaml")


def test_the_schema_for_editors_knows_checkpoints() -> None:
    schema = Draft202012Validator(study_schema())
    study = yaml.safe_load(entry(checkpoints="out/*"))
    assert schema.is_valid(study)
    assert schema.is_valid({**study, "models": study["models"][1]})
    assert not schema.is_valid({**study, "models": [{"label": "x", "chekpoints": "out/*"}]})


@given(st.sets(st.integers(0, 10**7), min_size=1, max_size=12), st.randoms())
def test_steps_are_in_order_whatever_order_they_are_written_in(steps: set[int], chance: random.Random) -> None:
    written = [f"step{step}" for step in steps]
    chance.shuffle(written)
    found = models_of({"label": "x", "source": "org/name", "revisions": written})
    assert [each["step"] for each in found] == sorted(steps)
    assert [each["revision"] for each in found] == [f"step{step}" for step in sorted(steps)]
