"""`attnscope run`, `tokens`, `report` and `measure` as people mistype them, and what they say when they are done."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnscope import studies
from attnscope.cli.run import _measured
from attnscope.runs.manifest import Timings
from attnscope.runs.perform import Outcome
from tests.cli.conftest import Run
from tests.runs.conftest import study_file, tiny_models

__all__ = ["study_file", "tiny_models"]


def test_a_prompt_that_the_study_does_not_have_is_refused(run: Run, study_file: Path) -> None:
    run("tokens", study_file, "--prompt", "99").refuses("there is no prompt 99", "--prompt 99", "0 to 2")
    assert "prompt 2" in run("tokens", study_file, "--prompt", "2").out


@pytest.mark.parametrize("rule", ["q=segment:question", "q=in:question:#"])
def test_a_class_of_a_segment_is_refused_where_there_are_no_segments(run: Run, rule: str) -> None:
    run("measure", "a prompt", "--class", rule).refuses("class 'q' needs segments", "attnscope new")


def test_what_is_no_folder_of_a_run_is_said_to_be_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prompts.csv").write_text("a\n1\n", encoding="utf-8")
    run("report", tmp_path / "prompts.csv").refuses("there is no run here")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  queries: [last", "  layers: [0, 7]\n  queries: [last", ["layer 7 of one", "line 28, measure.layers"]),
        ("  queries: [last", "  heads: [9]\n  queries: [last", ["head 9 of one", "line 28, measure.heads"]),
        ("layer: 1, head: 2", "layer: 1, head: 20", ["head 20 of one", "line 32, figures.1"]),
        ('  chat: "{intro}', '  chat: "{intr}', ["no field 'intr'", "line 11, prompts.chat"]),
        ("seed: 3", "seed: 3.5", ["is not a whole number", "line 2, seed"]),
    ],
)
def test_what_is_wrong_in_a_study_is_reported_with_its_line(
    run: Run, study_file: Path, old: str, new: str, words: list[str]
) -> None:
    text = study_file.read_text(encoding="utf-8")
    assert old in text
    study_file.write_text(text.replace(old, new, 1), encoding="utf-8")
    run("tokens", study_file).refuses(str(study_file), *words)


def test_a_prompt_file_that_is_missing_is_reported_with_its_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("models: [m]\nprompts:\n  file: gone.csv\n", encoding="utf-8")
    run("tokens", path).refuses(f"{path}, line 3, prompts.file", "no file of prompts 'gone.csv'")


def test_a_summary_says_what_was_measured_and_what_was_there() -> None:
    folder = Path("run")
    some = Outcome(folder, measured=41, reused=19, tokens=1_823)
    phases = {"loading": 7.12, "proof": 0.01, "measuring": 59.2, "figures": 61.0}
    timings = Timings(seconds=130, tokens=1_823, cells_measured=41, phases=phases)
    assert _measured(some, timings, "full") == [
        "measured 41 cells (1,823 tokens), 31 tokens per second; 19 were there already",
        "time: 2 min 10 s (loading 7.1 s, measuring 59 s, figures 61 s)",
    ]
    little = Timings(seconds=25, tokens=9, cells_measured=1)
    assert _measured(Outcome(folder, reused=24), little, "full")[0] == "nothing to measure: 24 cells were there already"
    assert _measured(Outcome(folder, measured=1, tokens=9), little, "quick") == [
        "measured 1 cell (9 tokens)",
        "time: 25 s",
        "evidence: quick (proof only)",
    ]


def test_a_stopped_run_claims_no_more_than_there_is(
    run: Run, study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(studies, "perform_request", stop)
    said = run("run", study_file, "--out", tmp_path / "run")
    assert said.code == 130
    lines = said.err.splitlines()
    assert lines[0].startswith("nothing has been measured yet; start again with: attnscope run")
    assert lines[1:] == ["attnscope: stopped"]
    (tmp_path / "run" / "shards").mkdir(parents=True)
    (tmp_path / "run" / "shards" / "a.safetensors").touch()
    assert "what has been measured is in" in run("run", study_file, "--out", tmp_path / "run").err
