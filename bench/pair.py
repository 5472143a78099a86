"""Two things to be timed against each other."""

from __future__ import annotations

from dataclasses import dataclass

from bench.clock import Run


@dataclass(frozen=True)
class Pair:
    base: Run
    arm: Run
    against: str
    """What the base is, in words for the table."""
    tokens: int | None = None
    """How many there are, where that is not what was asked for."""
