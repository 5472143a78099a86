"""The first few prompts of a study are what they are in the whole study, whatever edits draw from the others."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import yaml

from attnscope.runs.plan import look_up_models, plan_model
from attnscope.studies import perform_request, request_study, small_study
from attnscope.study.schema import ModelSpec

TIER = "command"

QUESTIONS = ["Where is it?", "Who was there?", "Why not?", "When?", "Which of the two?", "What # is *?"]


@pytest.fixture
def drawn(tiny_models: tuple[Path, Path], tmp_path: Path) -> Path:
    """A study whose second condition draws from the other prompts."""
    other = {"name": "other", "insert": {"other_prompt": "q"}, "before": "q"}
    study = {
        "models": [{"label": "one", "source": str(tiny_models[0])}],
        "prompts": {"file": "prompts.jsonl", "chat": "Say {q}"},
        "conditions": ["none", other],
        "classes": {"q": "segment:q"},
    }
    write(tmp_path, QUESTIONS)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    return tmp_path / "study.yaml"


def write(folder: Path, questions: list[str]) -> None:
    pl.DataFrame({"q": questions}).write_ndjson(folder / "prompts.jsonl")


def test_text_of_other_prompts_does_not_depend_on_how_many_are_measured(drawn: Path, tmp_path: Path) -> None:
    texts: dict[tuple[str, int], str] = {}
    for limit in (1, 2, 5, None):
        request = request_study(drawn, limit=limit)
        ((spec, description),) = look_up_models(request)
        for cell in plan_model(request, spec, description).cells:
            assert texts.setdefault((cell.condition, cell.prompt.number), cell.text.text) == cell.text.text
    assert len(texts) == 2 * len(QUESTIONS)
    first = perform_request(request_study(drawn, limit=5), tmp_path / "run")
    then = perform_request(request_study(drawn), tmp_path / "run")
    assert (first.measured, first.reused) == (10, 0)
    assert (then.measured, then.reused) == (2, 10)
    assert perform_request(request_study(drawn), tmp_path / "run").unchanged


def test_a_small_study_of_a_training_draws_from_all_prompts(drawn: Path) -> None:
    model = ModelSpec(label="m", source="m")
    study, prompts = small_study(drawn, model, 2)
    assert [prompt.number for prompt in prompts.prompts] == [0, 1]
    assert len(prompts.every) == len(QUESTIONS)
    assert [each.name for each in study.conditions] == ["none", "other"]


def test_a_run_of_the_first_prompts_notices_when_others_change(drawn: Path, tmp_path: Path) -> None:
    perform_request(request_study(drawn, limit=2), tmp_path / "run")
    assert perform_request(request_study(drawn, limit=2), tmp_path / "run").unchanged
    write(tmp_path, [*QUESTIONS[:2], *(f"{each} Now?" for each in QUESTIONS[2:])])
    assert not perform_request(request_study(drawn, limit=2), tmp_path / "run").unchanged
