"""The adapter's model card, and its numbers beside it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from .evaluation import LONGEST, Asked, chance, shares
from .puzzles import Stage
from .recipe import BASE, DECOYS, HELD_OUT, HELD_OUT_SEED, SETTINGS

SMALL = 40  # puzzles of a check that takes seconds
_LIBRARIES = ("torch", "transformers", "peft")
_ABOUT = {
    "named": "Named in its own words (greedy decoding, at most "
    f"{LONGEST} tokens; its last words must be the move, verbatim)",
    "chosen": "Chosen among the possible moves (the worked answer with the highest probability, "
    "which favours short ones)",
}
_FRONT = "---\nlicense: apache-2.0\nlibrary_name: peft\n---\n"


def write_card(
    folder: Path,
    before: Sequence[Asked],
    after: Sequence[Asked],
    decoys: Sequence[Asked],
    steps: int,
    seed: int,
    *,
    placebo: bool = False,
) -> None:
    """README.md and evaluation.json in the adapter's folder."""
    results = {
        what: {
            "chance": chance(after, what),
            "before": {name: (share.right, share.of) for name, share in shares(before, what).items()},
            "after": {name: (share.right, share.of) for name, share in shares(after, what).items()},
        }
        for what in _ABOUT
    }
    small, fooled = shares(after[:SMALL], "named")["all"], shares(decoys, "named")["all"]
    asked = {
        "seed": HELD_OUT_SEED,
        "puzzles": len(after),
        "options": HELD_OUT,
        "small": (small.right, small.of),
        "decoys": {"options": DECOYS, "named": (fooled.right, fooled.of)},
    }
    (folder / "evaluation.json").write_text(json.dumps(asked | results, indent=1) + "\n", encoding="utf-8")
    parts = [
        _FRONT,
        "# smollm2-135m-blocks\n"
        if (steps, seed, placebo) == (SETTINGS.steps, SETTINGS.seed, False)
        else f"# A trial of smollm2-135m-blocks: {steps:,} steps, seed {seed}{', a placebo' * placebo}\n",
        *(["Every puzzle had the answer of another one, so it could not learn to solve them.\n"] if placebo else []),
        *_head(steps, seed),
        *(_table(what, before, after) for what in _ABOUT),
        *([_filled(f"Of the first {small.of} alone, for a quick check: named {small}.")] if len(after) > SMALL else []),
        _filled(
            "In training, only shapes that are scaled down are made of two-by-two blocks, so the start alone could "
            "give the move away. Of puzzles with such shapes that are translated or rotated instead, which training "
            f"never showed, it names {fooled}."
        ),
        "## What it is for\n",
        _filled(
            "The fine-tuned half of a pair whose attention can be compared, not a puzzle solver: other grid sizes, "
            "other drawings and other tasks were not tested."
        ),
    ]
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


def _head(steps: int, seed: int) -> list[str]:
    settings = SETTINGS
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    early = f" (stopped early: the stages below, with their rates and passes, are of {settings.steps:,} steps)"
    stopped = "" if steps == settings.steps else early
    bullets = (
        "Prompt: system message `Name the move.`, then the two drawings, rows numbered, cells separated by spaces. "
        "Answer: the rows and columns that the shape spans at the start and at the goal, then the move: "
        "`0-1,2-3 > 1-2,2-3: translate down 1`.",
        f"Data: generated, seeds {seed} onwards. One in eight puzzles is held out by its hash, so training "
        "and test share none. The puzzles of a stage are all different; the table shows how often training passes over "
        "them.",
        f"Training: {steps:,} steps of {settings.batch} puzzles{stopped}, loss on the answer's tokens only. AdamW "
        f"(betas {settings.betas[0]:g} and {settings.betas[1]:g}, no decay), gradients clipped at {settings.clip:g}, "
        f"rate {settings.rate:g}: rising over {settings.warmup} steps, then falling along half a cosine to "
        f"{settings.floor:.0%}. Rank {settings.rank}, alpha {settings.alpha}, on {', '.join(settings.adapted)}. "
        f"{versions}, float32 on a CPU; saved as float16.",
        "Licence: Apache-2.0, like the base model.",
    )
    return [
        _filled(
            f"A LoRA adapter for attnscope's `{BASE}` (SmolLM2-135M-Instruct, from its Q4_1 quantization), trained to "
            "name the move in ASCII puzzles: a shape drawn with `#`, its goal with `*`, and one move between them "
            "(translate, rotate by a quarter or a half, scale up or down by two). Made by `python -m examples.blocks`. "
            "It contains a checksum of every weight of its base, and attnscope refuses it on any other model, "
            "including the unquantized original."
        ),
        *(_filled(f"- {bullet}", indent="  ", end="") for bullet in bullets),
        "\n| stage | steps | puzzles | passes | moves | grid |\n|---|---|---|---|---|---|",
        *(_stage(number, stage) for number, stage in enumerate(settings.stages, 1)),
        "\n## Held-out puzzles, before and after training\n",
        _filled(
            f"Seed {HELD_OUT_SEED}, grids {HELD_OUT['least']} to {HELD_OUT['most']}; share correct, with the 95 % "
            "Wilson interval."
        ),
    ]


def _filled(text: str, *, indent: str = "", end: str = "\n") -> str:
    lines = textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines + end


def _stage(number: int, stage: Stage) -> str:
    moves = Counter(stage.options["moves"])
    shares_of_moves = ", ".join(f"{name} {count}/{moves.total()}" for name, count in moves.items())
    passes = stage.steps * SETTINGS.batch / stage.puzzles
    grid = f"{stage.options['least']} to {stage.options['most']}"
    return f"| {number} | {stage.steps:,} | {stage.puzzles:,} | {passes:.1f} | {shares_of_moves} | {grid} |"


def _table(what: str, before: Sequence[Asked], after: Sequence[Asked]) -> str:
    then, now = shares(before, what), shares(after, what)
    rows = "\n".join(f"| {name} | {then[name]} | {now[name]} |" for name in now)
    blind = "always the commonest answer" if what == "named" else "any of the possible moves"
    return (
        f"{_ABOUT[what]}; chance, {blind}: {chance(after, what):.1%}.\n\n"
        f"| move | before | after |\n|---|---|---|\n{rows}\n"
    )
