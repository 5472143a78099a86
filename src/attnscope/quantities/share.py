"""One set's share of what several receive: a focus score, a context share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from attnscope.quantities.quantity import Floats, Named, Quantity, Shares, ratio


class Share(Quantity):
    """What a class receives, as a share of what several classes receive together.

    With instruction and data it is the focus score of Attention Tracker; with context and question, a context share.
    Other tokens, such as attention sinks, don't count. None of the classes can overlap. Prompts that lack one of them
    have no share; a class that no prompt has under a condition, such as inserted text in the base prompt, counts as
    nothing there.
    """

    key: ClassVar[str] = "share"
    relative: ClassVar[bool] = True
    source: ClassVar[str] = "Hung et al. 2024, Attention Tracker (focus score, over chosen heads)"

    share: str = Field(min_length=1, description="A class or set.")
    of: list[str] = Field(min_length=1, description="Classes or sets that don't overlap; the first one among them.")

    @property
    def title(self) -> str:
        others = [name for name in self.of if name != self.share]
        return f"{self.share} over {' plus '.join([self.share, *others])}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("share",), self.share
        yield from ((("of", place), name) for place, name in enumerate(self.of))

    @property
    def disjoint(self) -> Iterator[Named]:
        yield from self.token_sets

    def values(self, shares: Shares) -> Floats:
        mine = shares.mass(self.share)
        others = [shares.mass(name) for name in dict.fromkeys(self.of) if name != self.share]
        present = [each for each in others if not np.isnan(each).all()]
        return ratio(mine, mine + np.sum(present, axis=0) if present else mine)
