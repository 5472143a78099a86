"""`python -m examples.blocks.sweep`: which learning rate works best in a short training on the first stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from attnscope.cli.main import speak
from attnscope.models.load import Loaded, load
from attnscope.text.sets import blocks

from .puzzles import Example, encode
from .recipe import BASE, HELD_OUT_SEED, SETTINGS
from .training import Settings, Training, answer_logits

RATES = (3e-4, 5e-4, 1e-3, 2e-3)


@dataclass(frozen=True)
class Tried:
    """One learning rate: results on held-out puzzles after training."""

    rate: float
    loss: float
    tokens: float
    """The share of the answers' tokens that are predicted correctly."""


def main(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoints, one per rate.")] = Path("runs/blocks-sweep"),
    steps: Annotated[int, typer.Option(min=1, help="Steps of the first stage for each rate.")] = 100,
    asked: Annotated[int, typer.Option(min=1, help="Held-out puzzles of the first stage's kind.")] = 64,
) -> None:
    """Train briefly at several learning rates and report results on held-out puzzles; continues after a stop."""
    console = Console()
    for rate in RATES:
        with console.status("loading") as status:
            loaded = load(BASE, device="cpu", dtype="float32")
            tried = attempt(loaded, short(rate, steps), out / f"{rate:g}", asked, status.update)
        console.print(f"rate {tried.rate:g}: held-out loss {tried.loss:.3f}, {tried.tokens:.1%} of the tokens right")


def short(rate: float, steps: int) -> Settings:
    """The recipe's settings, for a few steps of its first stage at another rate."""
    return replace(SETTINGS, rate=rate, stages=(replace(SETTINGS.stages[0], steps=steps),))


def attempt(loaded: Loaded, settings: Settings, folder: Path, asked: int, say: Callable[[str], None]) -> Tried:
    """Train with these settings and test on held-out puzzles of the same kind."""
    training = Training(loaded, settings, folder)
    training.run(
        progress=lambda done, loss, _: say(f"rate {settings.rate:g}: step {done} of {settings.steps}, loss {loss:.3f}")
    )
    puzzles = blocks.make(asked, HELD_OUT_SEED, {**settings.stages[0].options, "part": "held-out"})
    return Tried(settings.rate, *held_out(training, [encode(puzzle, loaded.tokenization) for puzzle in puzzles]))


@torch.no_grad()
def held_out(training: Training, examples: Sequence[Example], together: int = 16) -> tuple[float, float]:
    """The mean loss of the answers' tokens, and the share predicted correctly."""
    losses, right = [], []
    for start in range(0, len(examples), together):
        logits, wanted, _ = answer_logits(training.model.get_base_model(), list(examples[start : start + together]))
        losses.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none"))
        right.append(logits.argmax(-1) == wanted)
    return float(torch.cat(losses).mean()), float(torch.cat(right).float().mean())


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(main)

if __name__ == "__main__":
    speak(app, "examples.blocks.sweep")
