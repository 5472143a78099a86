"""`python -m examples.blocks`: from nothing to a tested adapter with its card; run again, it goes on where it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from attnscope.errors import AttnscopeError
from attnscope.models.load import load

from .card import write_card
from .evaluation import Asked, ask
from .puzzles import held_out
from .recipe import BASE, HELD_OUT_COUNT, HELD_OUT_SEED, SETTINGS
from .training import Training

SHOWN = 25  # steps over which the loss and accuracy shown are averaged


def main(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint, the answers and the adapter.")] = Path(
        "runs/blocks"
    ),
    steps: Annotated[int | None, typer.Option(min=1, help="Stop training here, to try the recipe.")] = None,
    asked: Annotated[int, typer.Option(min=1, help="How many held-out puzzles are asked.")] = HELD_OUT_COUNT,
) -> None:
    """Train SmolLM2-135M-Instruct on ASCII puzzles, test it before and after, write the adapter and its card."""
    console = Console()
    try:
        before = _answers(console, "before", out / f"before-{asked}.json", asked, None)
        done = _train(console, out, steps)
        after = _answers(console, "after", None, asked, out / "adapter")
        write_card(out / "adapter", before, after, done)
    except AttnscopeError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from the last checkpoint")
        raise typer.Exit(130) from None
    console.print((out / "adapter" / "README.md").read_text(encoding="utf-8"), markup=False)


def _answers(console: Console, when: str, kept: Path | None, count: int, adapter: Path | None) -> list[Asked]:
    """What the model answers to the held-out puzzles; the untrained model is asked once and its answers kept."""
    if kept and kept.is_file():
        return [Asked(**each) for each in json.loads(kept.read_text(encoding="utf-8"))]
    loaded = load(BASE, adapter=str(adapter) if adapter else None)
    with _bar(console) as bar:
        task = bar.add_task(f"asking {count} held-out puzzles, {when} training", total=count, told="")
        found = ask(loaded, held_out(count, HELD_OUT_SEED), lambda done: bar.update(task, completed=done))
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([asdict(each) for each in found], indent=1), encoding="utf-8")
    return found


def _train(console: Console, out: Path, until: int | None) -> int:
    training = Training(load(BASE), SETTINGS, out)
    with _bar(console) as bar:
        task = bar.add_task("training", total=until or SETTINGS.steps, completed=training.done, told="")

        def told(done: int, *_: float) -> None:
            loss, right = training.log[-SHOWN:].mean(0).tolist()
            bar.update(task, completed=done, told=f"step {done}, loss {loss:.3f}, {right:.0%} right before learning")
            if done % 100 == 0:
                console.print(f"step {done}: loss {loss:.3f}, {right:.0%} right before learning from them")

        training.run(until, progress=told)
    training.save_adapter(out / "adapter")
    return training.done


def _bar(console: Console) -> Progress:
    parts = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    return Progress(*parts, TimeElapsedColumn(), TimeRemainingColumn(), console=console)


if __name__ == "__main__":
    typer.run(main)
