"""`attnscope tokens` shows what every edit puts in, takes out and moves, with signs that need no colour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnscope.cli.main import app
from attnscope.text import patterns
from tests.cli.conftest import Run
from tests.runs.conftest import tiny_models

TIER = "command"
__all__ = ["tiny_models"]

STUDY = """\
models: [{{label: one, source: {source}}}]
prompts:
  items:
    - question: "Which one?"
      hint: "Look at it again."
      passages: ["First one.", "Second one.", "Third one."]
  chat: "{{passages}}\\n\\n{{hint}}\\nQuestion: {{question}}"
conditions:
  - none
  - {condition}
classes: {{question: segment:question, "a class with a name that is far too long for any table": "#"}}
"""

EDITS = {
    '{name: x, insert: {repeat: "/"}, tokens: 5, before: question}': "Question: {+",
    "{name: x, delete: hint}": "[-Look at it again.-]",
    '{name: x, replace: {segment: hint, with: {text: "N/A"}}}': "[-Look at it again.-]{+N/A+}",
    "{name: x, move: question, before: passages}": "{~1:Which one?~}",
    "{name: x, swap: [hint, question]}": "[~2~]{~1:Which one?~}⏎\nQuestion: [~1~]{~2:Look at it again.~}",
    "{name: x, order: {of: passages, by: reversed}}": "[~2~]{~1:Third one.~}",
    "{name: x, repeat: question, times: 2}": "Which one?{+",
    "{name: x, truncate: hint, tokens: 2}": "[-",
}


def shown(study: Path, **env: str) -> str:
    done = CliRunner().invoke(app, ["tokens", str(study)], env={"COLUMNS": "80", **env}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("condition", "words"), EDITS.items())
def test_every_edit_is_shown_with_its_signs_and_a_legend(
    tiny_models: tuple[Path, Path], tmp_path: Path, condition: str, words: str
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(source=tiny_models[0], condition=condition), encoding="utf-8")
    output = shown(study)
    _, edits = output.split("edits of x, prompt 0")
    assert words in edits
    marks = set(re.findall(r"\{\+|\[-|\{~|\[~", edits.split("edits: ")[0]))
    assert marks
    legend = edits.split("edits: ")[1]
    assert all(mark in legend for mark in marks)
    assert max(len(line) for line in output.splitlines()) <= 80


def test_an_edit_that_changes_nothing_says_so(tiny_models: tuple[Path, Path], tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    same = "{name: x, order: {of: passages, by: [1, 2, 3]}}"
    study.write_text(STUDY.format(source=tiny_models[0], condition=same), encoding="utf-8")
    assert "edits: none, this prompt stays as it is" in shown(study)


def test_edits_are_in_colour_on_a_terminal(tiny_models: tuple[Path, Path], tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(source=tiny_models[0], condition="{name: x, delete: hint}"), encoding="utf-8")
    output = shown(study, FORCE_COLOR="1", TERM="xterm-256color")
    assert re.search(r"\x1b\[9;31m\[-Look at it again", output)


def test_long_stretches_are_shortened_in_the_middle(tiny_models: tuple[Path, Path], tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    long = '{name: x, insert: {repeat: "/"}, times: 300, before: question}'
    study.write_text(STUDY.format(source=tiny_models[0], condition=long), encoding="utf-8")
    edits = shown(study).split("edits of x")[1]
    assert "characters" in edits.split("edits: ")[0]
    assert edits.count("/") < 260


def test_tokens_show_each_character_once_and_nothing_controls_the_terminal(
    tiny_models: tuple[Path, Path], tmp_path: Path
) -> None:
    study = tmp_path / "study.yaml"
    question = r'"日本 🙂 \e[31mred\u202e"'
    study.write_text(STUDY.format(source=tiny_models[0], condition="{name: x, delete: hint}"), encoding="utf-8")
    study.write_text(study.read_text().replace('"Which one?"', question), encoding="utf-8")
    output = shown(study)
    assert "日··本·· 🙂··· " in output
    assert "\x1b" not in output
    assert "\u202e" not in output
    assert r"\x1b[31mred\u202e" in output


def test_tokens_are_those_of_the_model_that_is_named(tiny_models: tuple[Path, Path], tmp_path: Path, run: Run) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(source=tiny_models[0], condition="{name: x, delete: hint}"), encoding="utf-8")
    said = run("tokens", study, "--model", tiny_models[1])
    assert said.code == 0
    assert str(tiny_models[1]) in said.out.replace("\n", "")
    run("tokens", study, "--model", "no/such/model").refuses("no/such/model")


@pytest.mark.parametrize("key", ["classes: {slow: 're:(a|aa)+$'}", "measure: {queries: [{match: (a|aa)+$}]}"])
def test_tokens_stop_at_a_pattern_that_never_ends(
    tiny_models: tuple[Path, Path], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.2)
    study = tmp_path / "study.yaml"
    prompts = f"{{items: [{{q: {'a' * 60}b}}, {{q: {'a' * 61}b}}], plain: '{{q}}'}}"
    study.write_text(f"models: ['{tiny_models[0]}']\nprompts: {prompts}\n{key}\n", encoding="utf-8")
    run("tokens", study).refuses("takes too long", "at most 0.2 seconds of computing per prompt", "line 3")
