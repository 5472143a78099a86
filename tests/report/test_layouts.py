"""A study of a chat model and a base model: every output says how each got its prompts, and warns where it matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnscope.analysis.compared import compare
from attnscope.analysis.run import Run
from attnscope.analysis.two_runs import between
from attnscope.figures.selection import laid_out
from attnscope.report.comparison_tables import facts
from attnscope.report.evidence import input_warnings
from attnscope.studies import run_study
from tests.models import tiny

TIER = "command"

CHAT = "{% for m in messages %}<s>{{ m['content'] }}</s>\n{% endfor %}<s>assistant\n"
STUDY = """\
title: Two kinds of model
models:
{models}
prompts:
  items: [{{q: one}}, {{q: two}}, {{q: three}}, {{q: four}}, {{q: five}}, {{q: six}}]
  chat: "Say {{q}}"
  plain: "{first}Say {{q}}"
conditions: [none]
classes: {{q: segment:q}}
measure: {{queries: [last]}}
figures:
  - {{name: both, kind: bars, classes: [q]}}
  - {{name: chat, kind: bars, classes: [q], models: [chatty]}}
"""


def save(folder: Path, *, chat: bool) -> str:
    tiny.save_model(folder, tiny.llama_config(max_position_embeddings=512), seed=int(chat))
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT if chat else None
    tokenizer.add_bos_token = not chat
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save(folder / name, chat=name == "chatty") for name in ("chatty", "base")}


def run(folder: Path, models: dict[str, str], first: str = "", swaps: dict[str, str] | None = None) -> Run:
    lines = "\n".join(f"  - {{label: {label}, source: {source}}}" for label, source in models.items())
    study = folder / "study.yaml"
    study.write_text(STUDY.format(models=lines, first=first))
    return run_study(str(study), folder / f"run{len(list(folder.iterdir()))}", swaps=swaps or {})


@pytest.fixture(scope="module")
def both(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The base model's tokenizer adds BOS, and its layout writes one too."""
    return run(tmp_path_factory.mktemp("both"), models, first="<s>")


def test_captions_say_how_prompts_were_laid_out(both: Run) -> None:
    captions = {name: (both.path / "figures" / f"{name}.md").read_text() for name in ("both", "chat")}
    assert "Prompts in the chat template for chatty, as plain text for base." in captions["both"]
    assert "Prompts in the chat template." in captions["chat"]
    assert "plain text" not in captions["chat"]


def test_evidence_says_how_prompts_were_laid_out_and_how_they_begin(both: Run) -> None:
    chatty, base = (both.path / "evidence.md").read_text().replace("\\", "").split("## base")
    assert "Prompts in the chat template." in chatty
    assert "6 of 6 prompts begin with <s>." in chatty
    assert "Prompts as plain text." in base
    assert "WARNING" not in chatty
    assert "WARNING: 6 of 6 prompts for base may be wrong: it begins with <s> twice" in base
    assert input_warnings(both, "chatty") == []
    assert len(input_warnings(both, "base")) == 1


def test_a_comparison_of_the_two_says_that_their_prompts_differ(both: Run) -> None:
    (found,) = both.compare()
    line = "Prompts in the chat template for chatty, as plain text for base: part of a difference may come from that."
    assert line in facts(found)
    assert line in next((both.path / "comparisons").glob("*.md")).read_text()


def test_runs_that_share_a_label_but_not_a_layout_do_not_differ_in_models_alone(
    models: dict[str, str], tmp_path: Path
) -> None:
    one = run(tmp_path, {"chatty": models["chatty"]})
    two = run(tmp_path, {"chatty": models["chatty"]}, swaps={"chatty": models["base"]})
    (comparison,) = between(one, two)
    lines = facts(compare(comparison))
    assert "The runs differ in models and in how prompts are laid out." in lines
    sides = comparison.sides
    assert any(f"in the chat template for {sides[0]}, as plain text for {sides[1]}" in line for line in lines)


def test_a_model_named_by_the_folder_one_is_in_is_labelled_by_its_name(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(models=f"  - {{label: chatty, source: {models['chatty']}}}", first=""))
    monkeypatch.chdir(models["base"])
    assert run_study(str(study), tmp_path / "run", instead=".").models == ["base"]


def test_layouts_in_words() -> None:
    assert laid_out([("a", "chat"), ("b", "chat")]) == "Prompts in the chat template"
    assert laid_out([("a", "chat"), ("b", "plain"), ("c", "chat")]) == (
        "Prompts in the chat template for a and c, as plain text for b"
    )
    assert laid_out([("a", None)]) == ""
