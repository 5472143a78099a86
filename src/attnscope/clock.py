"""Where the time of a command goes: seconds by phase."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, get_args

Phase = Literal[
    "planning", "loading", "proof", "generation", "measuring", "spot check", "interventions", "tables", "figures"
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""In the order a run has them."""
SHOWN = 0.05  # seconds; a phase that took less is not shown


class Clock:
    """Counts seconds by phase, from when it is made.

    A phase within another stops the outer one until it ends, so no second counts twice. Work in other threads or
    processes counts for the phase that waits for it.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._open: list[Phase] = []
        self._thread = threading.get_ident()
        self._began = self._since = time.monotonic()

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Inside, time counts for this phase."""
        if threading.get_ident() != self._thread:
            yield
            return
        self._settle()
        self._open.append(name)
        try:
            yield
        finally:
            self._settle()
            self._open.pop()

    def _settle(self) -> None:
        """Give the time since the last change to the phase that is open."""
        now = time.monotonic()
        if self._open:
            self._seconds[self._open[-1]] += now - self._since
        self._since = now

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of the phases so far, without those that were not entered."""
        self._settle()
        return {name: seconds for name, seconds in self._seconds.items() if seconds > 0}

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return _two(whole, "min", "s")
    return _two(whole // 60, "h", "min")


def _two(count: int, larger: str, smaller: str) -> str:
    """So many of the smaller unit, in both."""
    most, rest = divmod(count, 60)
    return f"{most} {larger} {rest} {smaller}" if rest else f"{most} {larger}"


def phases_in_words(phases: Mapping[str, float]) -> str:
    """`loading 2.1 s, measuring 12 s`; empty if nothing took noticeable time."""
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in phases.items() if seconds >= SHOWN)
