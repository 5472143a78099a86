"""What a source of inserted text promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class Ground:
    """What a source may draw on: the prompt it is inserted into, and the words of the model's vocabulary."""

    fields: Mapping[str, str]
    vocabulary: Sequence[str]


class Source(BaseModel):
    """Drafts texts of any size. The same chance gives the same text, and a longer one goes on where a shorter ends."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: ClassVar[str]

    @property
    def segment(self) -> str | None:
        """The prompt's segment that it copies, if it does."""
        return None

    def draft(self, units: int, chance: Random, ground: Ground) -> str:
        """A text of so many units (repeats, words, tokens: the source's own)."""
        raise NotImplementedError

    def natural(self, ground: Ground) -> int | None:
        """How many units it has when no length is asked for; None if it has to be asked for."""
        return None
