"""Puzzles for training and for testing: disjoint parts of the prompt set `blocks`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from attnscope.models.tokenization import Tokenization
from attnscope.text.layout import lay_out
from attnscope.text.sets import blocks

Puzzle = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """A stage of training: steps, number of different puzzles, and their options."""

    steps: int
    puzzles: int
    options: dict[str, Any]


def stage_puzzles(stage: Stage, seed: int) -> list[Puzzle]:
    """The puzzles of one stage, all from the training part."""
    return blocks.make(stage.puzzles, seed, {**stage.options, "part": "train"})


def kind(puzzle: Puzzle) -> str:
    """The kind of move as it is reported, such as 'rotate by a half' or 'scale up'."""
    words = str(puzzle["answer"]).split()
    if puzzle["move"] == "rotate":
        return "rotate by a half" if words[1] == "half" else "rotate by a quarter"
    return " ".join(words[:2]) if puzzle["move"] == "scale" else "translate"


@dataclass(frozen=True)
class Example:
    """A puzzle as token ids: the prompt up to where the model answers, and the worked answer with its end."""

    prompt: list[int]
    answer: list[int]

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.answer)


def encode(puzzle: Puzzle, tokenization: Tokenization) -> Example:
    """Laid out as the bundled study `symbols` lays it out."""
    tokenizer = tokenization.tokenizer
    answer = tokenizer(puzzle["worked"], add_special_tokens=False)["input_ids"]
    return Example(prompt_ids(puzzle, tokenization), [*answer, tokenizer.eos_token_id])


def prompt_ids(puzzle: Puzzle, tokenization: Tokenization) -> list[int]:
    """A puzzle's prompt, up to where the model answers."""

    def apply(messages: Any) -> str:
        return tokenization.render([{"role": role, "content": content} for role, content in messages])

    layout = blocks.SET.layouts.chosen(has_template=True)
    fields = {field: str(puzzle[field]) for field in layout.fields}
    text = lay_out(layout.pieces(fields), apply).text
    return [token.id for token in tokenization.tokenize(text, chat=True)]


def batches(examples: list[Example], size: int, steps: int, seed: int) -> Iterator[list[Example]]:
    """`steps` batches, in passes over all examples; examples of similar length together, to avoid padding."""
    whole = len(examples) // size * size
    if not whole:
        raise ValueError(f"{len(examples)} examples don't fill a batch of {size}")
    count = 0
    for number in range(steps):
        chance = Random(f"{seed} {number}")  # noqa: S311
        by_length = sorted(chance.sample(examples, whole), key=lambda example: example.length)
        chunks = [by_length[start : start + size] for start in range(0, whole, size)]
        chance.shuffle(chunks)
        for batch in chunks:
            if count == steps:
                return
            yield batch
            count += 1
