"""`python -m examples.blocks`: from nothing to a tested adapter with its card; continues after a stop."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from attnscope import TrainerCallback
from attnscope.cli.main import speak
from attnscope.errors import AttnscopeError
from attnscope.models.load import Loaded, load
from attnscope.text.sets import blocks

from .card import write_card
from .evaluation import Asked, ask
from .puzzles import Puzzle
from .recipe import BASE, DECOY_COUNT, DECOYS, HELD_OUT, HELD_OUT_COUNT, HELD_OUT_SEED, SETTINGS
from .training import CHECKPOINT, Settings, Training

SHOWN = 25  # steps over which the loss and accuracy shown are averaged
REPORTED = 100  # steps between lines that stay on screen
WATCHED = "symbols"  # the study that is measured now and then while the adapter is trained


def main(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint and the adapter.")] = Path("runs/blocks"),
    steps: Annotated[int | None, typer.Option(min=1, help="Stop training after this step, to try the recipe.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="The seed: of the training puzzles, their order and the first weights.")
    ] = SETTINGS.seed,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Keep the adapter of every so many steps, in folders checkpoint-STEP.")
    ] = None,
    placebo: Annotated[bool, typer.Option(help="Give each puzzle the answer of another one.")] = False,
    asked: Annotated[
        int, typer.Option(min=1, max=HELD_OUT_COUNT, help="How many held-out puzzles to ask.")
    ] = HELD_OUT_COUNT,
) -> None:
    """Train SmolLM2-135M-Instruct on ASCII puzzles, test it before and after, write the adapter and its card."""
    console, complaints = Console(), Console(stderr=True, soft_wrap=True)
    try:
        _create_folder(out)
        puzzles = blocks.make(asked, HELD_OUT_SEED, HELD_OUT)
        before = _before(console, out / "before.json", puzzles)
        done = _train(console, out, steps, replace(SETTINGS, seed=seed, placebo=placebo), keep)
        tuned = _loaded(out / "adapter")
        after = _asked(console, "after training", tuned, puzzles)
        decoys = _asked(console, "with decoys", tuned, blocks.make(min(asked, DECOY_COUNT), HELD_OUT_SEED, DECOYS))
        write_card(out / "adapter", before, after, decoys, done, seed, placebo=placebo)
    except KeyboardInterrupt:
        resumable = (out / CHECKPOINT).is_file()
        complaints.print(
            f"stopped; the same command {'continues from the checkpoint' if resumable else 'starts again'}"
        )
        raise typer.Exit(130) from None
    console.print((out / "adapter" / "README.md").read_text(encoding="utf-8"), markup=False, soft_wrap=True)
    console.print(f"adapter and card: {out / 'adapter'}", markup=False, soft_wrap=True)


def _create_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AttnscopeError(
            f"can't create the folder: {error.strerror}",
            where=str(out),
            allowed="a folder you can write to",
            todo="choose another with --out",
        ) from error


def _loaded(adapter: Path | None = None) -> Loaded:
    return load(BASE, adapter=str(adapter) if adapter else None, device="cpu", dtype="float32")


def _before(console: Console, file: Path, puzzles: Sequence[Puzzle]) -> list[Asked]:
    """What the untrained model answers; stored with the puzzles, and asked only once."""
    drawings = sha256("".join(puzzle["drawing"] for puzzle in puzzles).encode()).hexdigest()
    try:
        stored: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if stored["drawings"] == drawings:
            return [Asked(**each) for each in stored["answers"]]
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged: ask again
        pass
    answers = _asked(console, "before training", _loaded(), puzzles)
    partial = file.with_suffix(".part")
    partial.write_text(
        json.dumps({"drawings": drawings, "answers": [asdict(each) for each in answers]}), encoding="utf-8"
    )
    os.replace(partial, file)
    return answers


def _asked(console: Console, when: str, loaded: Loaded, puzzles: Sequence[Puzzle]) -> list[Asked]:
    with _bar(console) as bar:
        task = bar.add_task(f"asking {len(puzzles)} puzzles, {when}", total=len(puzzles), status="")
        return ask(loaded, puzzles, lambda done: bar.update(task, completed=done))


def _train(console: Console, out: Path, until: int | None, settings: Settings, keep: int | None) -> int:
    training = Training(_loaded(), settings, out)
    watch = TrainerCallback(WATCHED, csv=out / "attention.csv")
    if until is not None and training.done > until:
        console.print(f"{out} already has {training.done} steps; --steps {until} changes nothing")
    with _bar(console) as bar:
        task = bar.add_task("training", total=until or SETTINGS.steps, completed=training.done, status="")

        def report(done: int, *_: float) -> None:
            loss, right = training.log[-SHOWN:].mean(0).tolist()
            words = f"step {done}, loss {loss:.3f}, {right:.0%} right"
            bar.update(task, completed=done, status=words)
            if done % REPORTED == 0:
                console.print(f"{words} when first seen in this pass (mean of {SHOWN} steps)")
            _say(console, done, watch.step(done))

        _say(console, training.done, watch.begin(training.model, training.loaded.tokenizer, training.done))
        training.run(until, keep=keep, progress=report)
        _say(console, training.done, watch.end(training.done))
    console.print(
        f"measuring attention took {watch.share_spent:.1%} of the time; {out / 'attention.csv'} has the numbers"
    )
    training.save_adapter(out / "adapter")
    return training.done


def _say(console: Console, step: int, numbers: Mapping[str, float]) -> None:
    """Where the last token looks, if it was measured at this step."""
    shares = [f"{name.rpartition('/')[2]} {share:.4f}" for name, share in numbers.items() if "/last/" in name]
    if shares:
        console.print(f"step {step}, attention from the last token: {', '.join(shares)}")


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(main)

if __name__ == "__main__":
    speak(app, "examples.blocks")
