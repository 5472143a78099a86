"""How a study's models write their answers, and the seed of each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from attnscope.runs.cells import Cell
from attnscope.runs.request import WRITING
from attnscope.study.sampling import Sample
from attnscope.study.schema import Study


@dataclass(frozen=True)
class Writing:
    """At most so many tokens, always the likeliest next one, or drawn with a seed."""

    tokens: int
    sample: Sample | None = None
    seed: int = 0

    @property
    def facts(self) -> dict[str, object]:
        """What an answer depends on, apart from the prompt and its seed."""
        return {
            "writing": WRITING,
            "tokens": self.tokens,
            "sample": None if self.sample is None else self.sample.model_dump(mode="json"),
        }

    def seed_of(self, cell: Cell) -> int:
        """The same for every model and wherever the prompt stands; another one for each prompt and condition."""
        name = f"{self.seed}/{cell.condition}/{cell.prompt.name}/answer"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big")

    def facts_of(self, cell: Cell) -> dict[str, object]:
        """What this cell's answer depends on beside its tokens."""
        return {} if self.sample is None else {"seed": self.seed_of(cell)}


def writing_of(study: Study) -> Writing | None:
    """How the study's models write their answers; None if they don't."""
    answer = study.prompts.answer
    if answer is None or answer.generate is None:
        return None
    return Writing(answer.generate, answer.sample, study.seed if answer.seed is None else answer.seed)
