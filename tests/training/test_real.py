"""A short LoRA training of the default model: what the callback sees is what its checkpoints show afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from examples.blocks.puzzles import Stage
from examples.blocks.recipe import BASE, SETTINGS
from examples.blocks.training import Training

import attnscope
from attnscope.models.load import load
from attnscope.studies import run_study
from tests.tolerances import HALF

pytestmark = pytest.mark.model

STUDY = """
models:
  - {{label: puzzles, source: smollm2-135m-instruct, checkpoints: "{out}/checkpoint-*"}}
prompts:
  set: blocks
  count: 6
  options: {{part: held-out, moves: [translate], least: 4, most: 4}}
classes: {{hash: "#", star: "*", whitespace: {{regex: '[ ]'}}}}
measure: {{queries: [last]}}
figures:
  - {{name: while-trained, kind: trajectory}}
"""


def test_a_short_training_of_the_default_model_is_seen_alike_during_and_after(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(out=tmp_path / "out"))
    stage = Stage(steps=4, puzzles=8, options={"moves": ["translate"], "least": 4, "most": 4})
    settings = replace(SETTINGS, stages=(stage,), batch=2, warmup=1)
    training = Training(load(BASE, dtype="float32", device="cpu"), settings, tmp_path / "out")
    callback = attnscope.TrainerCallback(study, every=2, share=float("inf"))
    callback.begin(training.model, training.loaded.tokenizer)

    def measured(done: int, *_: float) -> None:
        callback.step(done)

    training.run(keep=2, progress=measured)
    callback.end(training.done)
    during = callback.table().filter(pl.col("token_class") != "other").sort("step", "token_class")
    assert sorted(set(during["step"])) == [0, 2, 4]
    run = run_study(study, tmp_path / "run")
    figure = pl.read_csv(run.path / "figures" / "while-trained.csv").sort("x", "series")
    assert figure["x"].to_list() == during["step"].to_list()
    assert figure["series"].to_list() == during["token_class"].to_list()
    assert ((figure["value"] - during["mass"]).abs() <= HALF * during["mass"] + 1e-5).all()
    changes = figure.filter(pl.col("x") == 4)["difference"].abs()
    assert changes.max() > 0.001  # type: ignore[operator]  # four steps move attention already
    reading = (run.path / "figures" / "while-trained.md").read_text(encoding="utf-8")
    assert "at step 4" in reading
