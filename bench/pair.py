"""Two calls to time against each other."""

from __future__ import annotations

from dataclasses import dataclass

from bench.clock import Run


@dataclass(frozen=True)
class Pair:
    base: Run
    arm: Run
    against: str
    """What the base is, for the table."""
    tokens: int | None = None
    """The number of tokens, if it differs from the requested one."""
