"""`attnscope new`: study files to start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnscope.study import file as study_file
from attnscope.study.file import bundled_studies, read_study
from tests.cli.conftest import Run


def test_a_new_study_explains_itself_and_is_valid(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    done = run("new", path)
    assert done.out == f"wrote {path}; run it with: attnscope run {path}\n"
    assert read_study(path).models
    run("new", path).refuses("the file exists already", str(path))


@pytest.mark.parametrize("name", sorted(bundled_studies()))
def test_a_bundled_study_is_copied_with_its_comments(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.yaml"
    assert run("new", "--from", name, path).code == 0
    assert path.read_bytes() == bundled_studies()[name].read_bytes()
    assert read_study(path) == read_study(bundled_studies()[name])


def test_a_name_that_is_not_bundled_lists_those_that_are(run: Run, tmp_path: Path) -> None:
    done = run("new", "--from", "fillr", tmp_path / "mine.yaml")
    done.refuses("'fillr'", "--from", "near: filler", "symbols", "encoder")
    assert not (tmp_path / "mine.yaml").exists()


def test_the_prompts_of_a_bundled_study_come_along(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "bundled"
    home.mkdir()
    (home / "asked.jsonl").write_text('{"question": "Why?"}\n', encoding="utf-8")
    (home / "asked.yaml").write_text("models: [m]\nprompts:\n  file: asked.jsonl\n", encoding="utf-8")
    monkeypatch.setattr(study_file, "BUNDLED", home)
    (tmp_path / "mine").mkdir()
    done = run("new", "--from", "asked", tmp_path / "mine" / "study.yaml")
    assert done.out.startswith(f"wrote {tmp_path / 'mine' / 'study.yaml'} and {tmp_path / 'mine' / 'asked.jsonl'};")
    assert (tmp_path / "mine" / "asked.jsonl").read_bytes() == (home / "asked.jsonl").read_bytes()
    (tmp_path / "mine" / "study.yaml").unlink()
    run("new", "--from", "asked", tmp_path / "mine" / "study.yaml").refuses("exists already", "asked.jsonl")
    assert not (tmp_path / "mine" / "study.yaml").exists()
