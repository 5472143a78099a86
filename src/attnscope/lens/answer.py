"""What a model wrote after a prompt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """What a model wrote after a prompt. `lens.measure_tokens([*answer.prompt_ids, *answer.ids])` measures both."""

    prompt: str
    """The prompt as the model got it, with its chat template."""
    prompt_ids: list[int]
    """The prompt's tokens."""
    text: str
    """The answer."""
    ids: list[int]
    """The answer's tokens, without the one that ends it."""
    ended: bool
    """Whether the model ended it itself; otherwise it reached the number of tokens asked for, or the context's end."""

    def __str__(self) -> str:
        return self.text
