"""One set against another: how much more it receives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from attnscope.quantities.quantity import Floats, Named, Quantity, Shares


class Contrast(Quantity):
    """What a class receives, minus what another one receives in the same prompt."""

    key: ClassVar[str] = "contrast"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    null: ClassVar[float | None] = 0.0

    contrast: str = Field(min_length=1, description="A class or set.")
    minus: str = Field(min_length=1, description="The class or set to subtract.")

    @property
    def title(self) -> str:
        return f"{self.contrast} minus {self.minus}"

    @property
    def token_sets(self) -> Iterator[Named]:
        yield ("contrast",), self.contrast
        yield ("minus",), self.minus

    def values(self, shares: Shares) -> Floats:
        return shares.mass(self.contrast) - shares.mass(self.minus)
