"""The adapter's model card, and its numbers beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from .evaluation import Asked, chance, shares
from .puzzles import HELD_OUT
from .recipe import BASE, HELD_OUT_SEED, SETTINGS
from .training import PROJECTIONS

SMALL = 40  # puzzles of a check that takes seconds
_LIBRARIES = ("torch", "transformers", "peft")
_ABOUT = {
    "named": "Named in its own words (greedy; what it says last must be the move, word for word)",
    "chosen": "Chosen among the possible moves (the likeliest worked answer)",
}


def write_card(folder: Path, before: Sequence[Asked], after: Sequence[Asked], steps: int) -> None:
    """README.md and evaluation.json in the adapter's folder."""
    found = {
        what: {
            "chance": chance(after, what),
            "before": {name: (share.right, share.of) for name, share in shares(before, what).items()},
            "after": {name: (share.right, share.of) for name, share in shares(after, what).items()},
        }
        for what in _ABOUT
    }
    small = shares(after[:SMALL], "named")["all"]
    asked = {"seed": HELD_OUT_SEED, "puzzles": len(after), "options": HELD_OUT, "small": (small.right, small.of)}
    (folder / "evaluation.json").write_text(json.dumps(asked | found, indent=1) + "\n", encoding="utf-8")
    quick = f"Of the first {small.of} alone, for a quick check: named {small}.\n"
    parts = [_head(steps), *(_table(what, before, after) for what in _ABOUT), quick, _limits()]
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


def _head(steps: int) -> str:
    settings = SETTINGS
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    stages = "\n".join(
        f"| {number} | {stage.steps} | {stage.puzzles} | {', '.join(stage.options.get('moves', ['all moves']))} "
        f"| {stage.options['least']} to {stage.options['most']} |"
        for number, stage in enumerate(settings.stages, 1)
    )
    return f"""---
license: apache-2.0
library_name: peft
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# smollm2-135m-blocks

A LoRA adapter for `{BASE}` (the Q4_1 quantization of SmolLM2-135M-Instruct, as float32), trained to name the move in
ASCII puzzles: a shape drawn with `#`, its goal with `*`, and one move between them (translate, rotate by a quarter or
a half, scale up or down by two). Made by `python -m examples.blocks`; it carries marks of the weights it was trained
on and is refused on any others.

- Prompt: system message `Name the move.`, then the two drawings, cells apart by blanks. Answer: the rows and columns
  that the shape spans at the start and at the goal, then the move: `0-1,2-3 > 1-2,2-3: translate down 1`.
- Data: generated, seed {settings.seed}, no puzzle twice in a stage. One in eight puzzles is held out by its hash, so
  training and test share none.
- Training: {steps:,} steps of {settings.batch} puzzles, AdamW, rate {settings.rate:g} (rising over {settings.warmup}
  steps, then falling along half a cosine), loss on the answer's tokens only; rank {settings.rank}, alpha
  {settings.alpha}, on {", ".join(PROJECTIONS)}. {versions}, on a CPU.
- Licence: Apache-2.0, as the base model's.

| stage | steps | puzzles | moves | grid |
|---|---|---|---|---|
{stages}

## Held-out puzzles, before and after training

Seed {HELD_OUT_SEED}, grids {HELD_OUT["least"]} to {HELD_OUT["most"]}; share right, with the 95 % interval of Wilson.
"""


def _table(what: str, before: Sequence[Asked], after: Sequence[Asked]) -> str:
    then, now = shares(before, what), shares(after, what)
    rows = "\n".join(f"| {name} | {then[name]} | {now[name]} |" for name in now)
    blind = "always the commonest answer" if what == "named" else "any of the possible moves"
    return (
        f"{_ABOUT[what]}; chance, {blind}: {chance(after, what):.1%}.\n\n"
        f"| move | before | after |\n|---|---|---|\n{rows}\n"
    )


def _limits() -> str:
    return """## What it is for

The fine-tuned half of a pair whose attention can be compared, not a puzzle solver. It knows grids of the sizes above
and the form of answer above; outside of them it is worse than it was.
"""
