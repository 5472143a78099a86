from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from attnscope.analysis.run import Run
from attnscope.measures.patterns import PATTERNS
from attnscope.studies import run_study
from tests.analysis.planted import PROMPTS
from tests.runs.conftest import save_tiny

EVERY_PATTERN = {"queries": ["last", "all"], "measures": list(PATTERNS)}
QUESTIONS = ["What # is *?", "Where is the * now?", "Which # of two?", "Who?", "How many # # are there?", "Is it *?"]
CONDITIONS: list[Any] = [
    "none",
    {"name": "filler", "insert": {"repeat": "/"}, "tokens": 24, "before": "question"},
    {"name": "sentence", "insert": {"sentence": "random"}, "match": "filler", "before": "question"},
]


def study(models: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    items = [
        {"intro": f"Look at this, number {number}.", "question": QUESTIONS[number % 6] + "!" * (number // 6)}
        for number in range(9)
    ]
    return {
        "seed": 5,
        "models": models,
        "prompts": {"items": items, "chat": "{intro}\n{question}"},
        "conditions": CONDITIONS,
        "classes": {"question": "segment:question", "inserted": "segment:inserted", "marks": "special:"},
        "measure": {"queries": ["last", "all"]},
    } | changes


def performed(content: dict[str, Any], home: Path, name: str = "run") -> Run:
    home.mkdir(parents=True, exist_ok=True)
    (home / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return run_study(str(home / f"{name}.yaml"), home / name)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "one", 1)


@pytest.fixture(scope="session")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    content = study([{"label": "one", "source": str(tiny)}], measure=EVERY_PATTERN)
    return performed(content, tmp_path_factory.mktemp("compared"))


@pytest.fixture(scope="session")
def measured(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Forty prompts, one condition."""
    items = [{"intro": f"Look at {n}.", "question": f"What # is {n * 7}?" + "!" * (n % 5)} for n in PROMPTS]
    prompts = {"items": items, "chat": "{intro}\n{question}"}
    models = [{"label": "one", "source": str(tiny)}]
    return performed(study(models, prompts=prompts, conditions=["none"]), tmp_path_factory.mktemp("measured"))
