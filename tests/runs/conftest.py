from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import tiny

CHAT = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] | trim }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)

STUDY = """\
title: A tiny study
seed: 3
models:
  - {{label: one, source: {one}}}
  - {{label: two, source: {two}}}
prompts:
  items:
    - {{intro: "Look.", question: "What # is *?"}}
    - {{intro: "Look at this.", question: "Where?"}}
    - {{intro: "Now", question: "Which of the two signs # # and * is there more often? 🙂"}}
  chat: "{{intro}}\\n{{question}}"
conditions:
  - none
  - name: filler
    insert: {{repeat: "/"}}
    tokens: 24
    before: question
  - name: sentence
    insert: {{sentence: random}}
    match: filler
    before: question
classes:
  hash: "#"
  space: "re:\\\\s"
  inserted: segment:inserted
  marks: "special:"
measure:
  queries: [last, all, question]
  measures: [entropy]
figures:
  - {{name: mass, kind: bars, classes: [hash, space, inserted]}}
  - name: along
    kind: lines
    queries: all
    conditions: [none, filler]
    panels: [{{model: one, layer: 1, head: 2}}, {{model: two, layer: 0, head: 0}}]
  - {{name: map, kind: heatmap, measure: space, difference: [none, filler]}}
  - {{name: models, kind: heatmap, measure: entropy, difference: [one, two], conditions: [none]}}
  - {{name: text, kind: strip, models: [one], conditions: [filler]}}
"""


def save_tiny(folder: Path, seed: int) -> Path:
    tiny.save_model(folder, tiny.llama_config(max_position_embeddings=512, initializer_range=0.3), seed=seed)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("models")
    return save_tiny(home / "one", 1), save_tiny(home / "two", 2)


@pytest.fixture
def study_file(tiny_models: tuple[Path, Path], tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.format(one=tiny_models[0], two=tiny_models[1]), encoding="utf-8")
    return path
