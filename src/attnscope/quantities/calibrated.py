"""What a set receives because of what is asked: attention minus that under a content-free question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from attnscope.quantities.quantity import Floats, Named, Quantity, Shares


class Calibrated(Quantity):
    """What a class receives, minus what it receives in the same prompt under another condition.

    With a condition that replaces the question by a content-free one, what is left is calibrated relevance: attention
    that a passage has for its place or its wording is subtracted.
    """

    key: ClassVar[str] = "calibrated"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    null: ClassVar[float | None] = 0.0
    source: ClassVar[str] = "Chen et al. 2024, In-Context Re-Ranking (calibration by a content-free query)"

    calibrated: str = Field(min_length=1, description="A class or set.")
    by: str = Field(min_length=1, description="The condition to subtract.")

    @property
    def title(self) -> str:
        return f"{self.calibrated}, minus that under {self.by}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("calibrated",), self.calibrated

    @property
    def conditions(self) -> Iterator[Named]:
        yield ("by",), self.by

    def values(self, shares: Shares) -> Floats:
        return shares.mass(self.calibrated) - shares.under(self.by).mass(self.calibrated)
