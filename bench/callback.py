"""What `TrainerCallback` takes at its default setting, in steps of a training: the recipe of examples/blocks."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

from examples.blocks.recipe import BASE, SETTINGS
from examples.blocks.training import Training

from attnscope import TrainerCallback
from attnscope.models.load import load
from bench.pair import Pair

STUDY = "symbols"


def callback(prompts: int, *, beginning: bool) -> Pair:
    """One measurement, or the beginning of a training, beside one step on the recipe's shortest puzzles."""
    training = Training(load(BASE, device="cpu", dtype="float32"), SETTINGS, Path(tempfile.gettempdir()) / "unused")
    batch = next(training.batches())
    watch = TrainerCallback(STUDY, prompts=prompts)
    watch.begin(training.model, training.loaded.tokenizer)
    numbers = count(1)

    def begin() -> object:
        return watch.begin(training.model, training.loaded.tokenizer)

    def measure() -> object:
        return watch.end(next(numbers))

    return Pair(
        lambda: training.step(0, batch),
        begin if beginning else measure,
        f"one step of training, {len(batch)} puzzles",
    )
