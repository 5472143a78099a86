"""What the shell completes, and that a completion can be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnscope.cli import completion
from tests.cli.conftest import Run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs" / "filler").mkdir(parents=True)
    (tmp_path / "runs" / "filler" / "manifest.json").touch()
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("filler-mine.yaml", "notes.txt", "model.gguf"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_studies_are_bundled_ones_and_files(here: Path) -> None:
    assert set(completion.studies("fil")) == {"filler", "filler-causal", "filler-vs-sentence", "filler-mine.yaml"}
    assert completion.studies("run") == ["runs/"]
    assert completion.studies("no/such/") == []
    assert "symbols" in completion.bundled("")


def test_runs_are_folders_with_a_manifest_or_on_the_way_to_one(here: Path) -> None:
    assert completion.runs("ru") == ["runs/"]
    assert completion.runs("runs/") == ["runs/filler", "runs/other/"]
    assert completion.runs(".h") == [".hidden/"]
    assert completion.runs("") == ["runs/"]


def test_models_are_built_in_ones_after_a_label_too(here: Path) -> None:
    assert completion.models("smol") == ["smollm2-135m-instruct", "smollm2-135m-blocks"]
    assert completion.models("mine=gem") == ["mine=gemma-3-270m"]
    assert "mine=model.gguf" in completion.models("mine=m")


def test_kinds_levels_and_engines_are_the_registered_ones() -> None:
    assert completion.kinds("heat") == ["heatmap"]
    assert [name for name, _ in completion.levels("")] == ["full", "quick", "none"]
    assert "local" in completion.engines("l")


def test_the_shell_gets_them(here: Path) -> None:
    def complete(words: str) -> list[str]:
        asked = {"_ATTNSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        code = "from attnscope.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
        )
        return done.stdout.split()

    assert complete("attnscope run sys") == ["system-prompt"]
    assert complete("attnscope run symbols --evidence q") == ["quick"]
    assert complete("attnscope report runs/f") == ["runs/filler"]
    assert complete("attnscope new x.yaml --from enc") == ["encoder"]


def test_a_completion_script_can_be_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    done = run("--show-completion")
    assert done.code == 0
    assert "_ATTNSCOPE_COMPLETE=complete_bash" in done.out
