"""What an engine is, and the job it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from attnscope.runs.cells import Cell
from attnscope.runs.store import Results
from attnscope.runs.trials import Trial

Batch = tuple[tuple[Cell, str], ...] | tuple[tuple[Trial, str], ...]
"""Cells that go through the model together, or trials, each with its key."""


class Measurer(Protocol):
    """Measures the cells of a batch.

    The model is loaded with the first batch, so an engine may send the measurer to another process first.
    """

    def __call__(self, batch: Batch) -> Results: ...


class Writer(Protocol):
    """Stores the results of a batch: all of them, or none. For the process that started the engine.

    What are no results of cells of the job is refused.
    """

    def write(self, results: Results) -> None: ...


@dataclass(frozen=True)
class Job:
    """The batches of one model that still have to be measured."""

    batches: Sequence[Batch]
    measure: Measurer
    store: Writer
    done: Callable[[Batch, Results], None]
    """Call this in the process that started the engine, after a batch is stored."""


@runtime_checkable
class Engine(Protocol):
    """Measures every batch of a job, stores its results whole, and reports it done.

    An error raised by `measure` ends the run; what is stored by then stays. Let it through, or raise your own from it:
    whatever else `run` raises is reported as the engine's mistake, and so is a batch that is not stored.
    """

    @property
    def name(self) -> str: ...

    @property
    def meaning(self) -> str: ...

    def run(self, job: Job) -> None: ...
