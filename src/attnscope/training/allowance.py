"""How much of the time of a training may go into measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter


@dataclass
class Allowance:
    """A share of the time of a training, and what of it is spent. clock: seconds."""

    share: float
    clock: Callable[[], float] = perf_counter
    spent: float = 0.0
    last: float = 0.0
    """What the last measurement took."""
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def training(self) -> float:
        """Seconds of training so far, without those spent here."""
        return self.clock() - self.started - self.spent

    def allows_another(self) -> bool:
        """Whether one more measurement, and the one at the end, stay within the share of the time so far."""
        return self.spent + 2 * self.last <= self.share * self.training

    @contextmanager
    def spending(self, *, measuring: bool) -> Iterator[None]:
        """measuring: this is a measurement, and the next one will take as long."""
        before = self.clock()
        try:
            yield
        finally:
            taken = self.clock() - before
            self.spent += taken
            self.last = taken if measuring else self.last
