"""What docs/training.md shows works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from transformers import Trainer, TrainingArguments

import attnscope
from attnscope.studies import request_study
from tests.figures.test_trajectory import checkpoint
from tests.models import tiny
from tests.runs.conftest import CHAT
from tests.training.test_callback import Texts, small_model

TIER = "command"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def test_the_examples_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (study,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    checkpoint(tmp_path / "out", 200)
    Path("my-study.yaml").write_text(study, encoding="utf-8")
    assert [spec.step for spec in request_study("my-study.yaml").study.models] == [0, 200]
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    names: dict[str, Any] = {
        "attnscope": attnscope,
        "Trainer": Trainer,
        "model": small_model(max_position_embeddings=512),
        "args": TrainingArguments(output_dir="trained", max_steps=2, report_to=[], use_cpu=True, disable_tqdm=True),
        "data": Texts(),
        "tokenizer": tokenizer,
    }
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(code, names)  # noqa: S102
        assert names["callback"].table()["step"].min() == 0
    assert Path("attention.csv").is_file()
