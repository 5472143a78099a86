"""What an engine is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from attnscope.runs.cells import Cell
from attnscope.runs.store import Results

Batch = tuple[tuple[Cell, str], ...]
"""Cells that go through the model together, each with its key."""


class Measurer(Protocol):
    """Measures the cells of a batch.

    The model is loaded when the first batch comes, so an engine may send the measurer to another process first.
    """

    def __call__(self, batch: Batch) -> Results: ...


class Writer(Protocol):
    """Stores what came of a batch: all of it, or nothing."""

    def write(self, results: Results) -> None: ...


@dataclass(frozen=True)
class Job:
    """The batches of one model that are still to be measured."""

    batches: Sequence[Batch]
    measure: Measurer
    store: Writer
    done: Callable[[Batch, Results], None]
    """To be called in the process that started the engine, after a batch is stored."""


@runtime_checkable
class Engine(Protocol):
    """Measures every batch of a job, stores its results whole, and reports it done.

    What `measure` raises ends the run; what was stored by then is kept.
    """

    @property
    def name(self) -> str: ...

    @property
    def meaning(self) -> str: ...

    def run(self, job: Job) -> None: ...
