"""How many puzzles a model solves: in its own words, and by choosing among the possible moves.

Named: the model answers greedily, and its last words must be the move, verbatim. Chosen: among the worked answers of
all possible moves, the most likely under the model must be the right one; a model that does not know the form of the
answer can still be right here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from attnscope.models.load import Loaded
from attnscope.text.sets import blocks

from .puzzles import Puzzle, encode, kind, prompt_ids

LONGEST = 32  # most tokens of an answer; the longest worked one has 24
TOGETHER = 16  # puzzles in a batch


@dataclass(frozen=True)
class Asked:
    """One puzzle and its answer."""

    kind: str
    answer: str
    said: str
    named: bool
    chosen: bool
    choices: int


@dataclass(frozen=True)
class Share:
    """A number out of a total, with the 95 % Wilson interval."""

    right: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        interval = binomtest(self.right, self.of).proportion_ci(method="wilson")
        return float(interval.low), float(interval.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.right / self.of:.1%} ({low:.1%} to {high:.1%}, {self.right} of {self.of})"


def ask(loaded: Loaded, puzzles: Sequence[Puzzle], progress: Callable[[int], None] = lambda _: None) -> list[Asked]:
    """Ask the model every puzzle."""
    asked = []
    for start in range(0, len(puzzles), TOGETHER):
        some = puzzles[start : start + TOGETHER]
        for puzzle, said in zip(some, answers(loaded, some), strict=True):
            choices = _choices(puzzle)
            asked.append(
                Asked(
                    kind=kind(puzzle),
                    answer=puzzle["answer"],
                    said=said,
                    named=names(said, puzzle),
                    chosen=_likeliest(loaded, puzzle, choices) == puzzle["worked"],
                    choices=len(choices),
                )
            )
        progress(len(asked))
    return asked


def shares(asked: Sequence[Asked], what: str) -> dict[str, Share]:
    """The share right per kind of move, and in all. what: named or chosen."""
    order = ("translate", "rotate", "scale")
    kinds = sorted({each.kind for each in asked}, key=lambda name: (order.index(name.split()[0]), name))
    groups = {name: [each for each in asked if each.kind == name] for name in kinds} | {"all": list(asked)}
    return {name: Share(sum(getattr(each, what) for each in some), len(some)) for name, some in groups.items()}


def chance(asked: Sequence[Asked], what: str) -> float:
    """The share right by guessing: always the most common answer, or any of the possible moves."""
    if what == "chosen":
        return sum(1 / each.choices for each in asked) / len(asked)
    return Counter(each.answer for each in asked).most_common(1)[0][1] / len(asked)


def names(said: str, puzzle: Puzzle) -> bool:
    """Whether what a model said ends with the right move."""
    return said.rpartition(":")[2].strip() == str(puzzle["answer"])


def answers(loaded: Loaded, puzzles: Sequence[Puzzle]) -> list[str]:
    """The model's answer to each puzzle, by greedy decoding."""
    tokenizer, model = loaded.tokenizer, loaded.model
    prompts = [prompt_ids(puzzle, loaded.tokenization) for puzzle in puzzles]
    longest = max(map(len, prompts))
    ids = torch.tensor([[tokenizer.eos_token_id] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    generate: Any = model.generate
    output = generate(
        ids, attention_mask=mask, max_new_tokens=LONGEST, do_sample=False, pad_token_id=tokenizer.eos_token_id
    )
    return [str(text) for text in tokenizer.batch_decode(output[:, longest:], skip_special_tokens=True)]


def _choices(puzzle: Puzzle) -> list[str]:
    """The worked answers of all moves that are possible from the start and have a goal of their own."""
    lines = puzzle["drawing"].split("\n\n")[0].splitlines()[1:]
    start = np.array([[cell == "#" for cell in line.split()[1:]] for line in lines])  # after the row's number
    goals = [(words, goal) for _, words, goal in blocks.moves(start) if (goal != start).any()]
    shown = Counter(goal.tobytes() for _, goal in goals)
    return [blocks.worked(start, goal, words) for words, goal in goals if shown[goal.tobytes()] == 1]


def _likeliest(loaded: Loaded, puzzle: Puzzle, choices: Sequence[str]) -> str:
    model: Any = loaded.model
    examples = [encode({**puzzle, "worked": choice}, loaded.tokenization) for choice in choices]
    padded = pad_sequence([torch.tensor(example.answer) for example in examples], batch_first=True, padding_value=-1)
    with torch.inference_mode():
        before = model.model(torch.tensor([examples[0].prompt]), use_cache=True)
        before.past_key_values.batch_repeat_interleave(len(choices))
        after = model.model(padded[:, :-1].clamp(min=0), past_key_values=before.past_key_values)
        last = before.last_hidden_state[:, -1:].expand(len(choices), -1, -1)
        logits = model.lm_head(torch.cat([last, after.last_hidden_state], 1))
    surprise = cross_entropy(logits.transpose(1, 2), padded, ignore_index=-1, reduction="none").sum(-1)
    return choices[int(surprise.argmin())]
