"""What commands say: one of a thing is not several, and a mistake in a study file is shown at its own line."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnscope.errors import AttnscopeError, near
from tests.cli.conftest import Run
from tests.models import tiny

TIER = "command"

STUDY = """\
models:
  - label: tiny
    source: {model}
prompts:
  file: prompts.jsonl
  plain: "{context}{question}"
conditions: [none]
classes:
  numbers: segment:question
figures:
  - name: map
    kind: heatmap
    measure: numbers
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    tiny.save_model(tmp_path / "model")
    (tmp_path / "prompts.jsonl").write_text('{"context": "a", "question": "b"}\n')
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace("{model}", str(tmp_path / "model")))
    return path


def test_one_token_is_not_several(run: Run, tmp_path: Path) -> None:
    tiny.save_model(tmp_path / "model")
    told = run("measure", "a", "--model", tmp_path / "model", "--layers", "0", "--heads", "1").out
    assert "1 token, 1 layer x 1 head, measured through" in " ".join(told.split())
    both = run("measure", "ab", "--model", tmp_path / "model", "--class", "x=#")
    assert "2 tokens, 2 layers x 4 heads" in " ".join(both.out.split())
    assert "matches 0 of 2 tokens" in both.err


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("{context}", "{contxt}", ["prompt 0 has no 'contxt'", "line 6, prompts.plain", "near: context"]),
        ("segment:question", "segment:qestion", ["no segment 'qestion'", "line 9, classes.numbers", "near: question"]),
        ("measure: numbers", "measure: nombers", ["no class or measure 'nombers'", "line 13", "near: numbers"]),
        ("/model", "/modle", ["line 3, models.0.source", "/modle"]),
        ("[none]", '["no\\e[31m\\u202Ene"]', ["'no\\x1b[31m\\u202ene'", "line 7, conditions.0"]),
        ("numbers: segment", '"num\\u202Ebers": segment', ["'num\\u202ebers' has the wrong form", "line 9, classes."]),
    ],
)
def test_a_mistake_in_a_study_is_shown_at_its_line(
    run: Run, study: Path, right: str, wrong: str, words: list[str]
) -> None:
    study.write_text(study.read_text().replace(right, wrong))
    run("run", study, "--dry-run").refuses(str(study), *words)


def test_a_model_that_the_study_does_not_name_is_not_sought_in_it(run: Run, study: Path) -> None:
    done = run("run", study, "--model", "tiny=nobody-knows", "--dry-run")
    done.refuses("'nobody-knows'")
    assert str(study) not in done.err


def test_an_error_shows_characters_that_would_control_the_terminal() -> None:
    error = AttnscopeError("a\x1b[31m \u202eb", where="\x9b1m", allowed="ü 日本 \N{FAMILY}\u200d", todo="c")
    assert str(error) == "a\\x1b[31m \\u202eb (\\x9b1m): ü 日本 \N{FAMILY}\u200d; c"


def test_an_error_shows_the_ends_of_what_is_too_long_and_a_command_whole() -> None:
    name, command = "x" * 5000, f"attnscope run {'/folder' * 30} --out {'/other' * 30}"
    error = AttnscopeError(
        f"can't find what isn't there: '{name}y' or 'z'", where="a" * 5000, allowed="others", todo=f"repeat '{command}'"
    )
    assert error.what.startswith("can't find what isn't there: 'xxx")
    assert error.what.endswith("xy' or 'z'")
    assert len(error.what) < 200
    assert len(error.where) == 1000
    assert command in str(error)


def test_where_there_are_no_names_none_is_near() -> None:
    assert near("x", []) == "there are none"
    assert near("x", ["y"]) == "known: y"


@pytest.mark.parametrize("pattern", ["(?R)?", "(" * 600 + "a" + ")" * 600, "(?:a{300}){300}"])
def test_a_class_that_can_not_be_computed_is_refused_before_a_model_is_loaded(run: Run, pattern: str) -> None:
    run("measure", "ab", "--model", "no/such/model", "--class", f"x=re:{pattern}").refuses("the pattern", "'re:(")
