"""Measures the cells of a batch, after the model wrote its answers if it is to.

What does not fit into memory is split; if a batch fails, its cells go one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from attnscope.errors import AttnscopeError, NoRoomError, StoppingError
from attnscope.lens import Lens
from attnscope.records import Record
from attnscope.registry import not_blamed
from attnscope.runs.answers import Writing
from attnscope.runs.batches import Budget, batches
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.engines import Batch
from attnscope.runs.store import MeasuredCell, NoRoom, RefusedCell, Result
from attnscope.runs.tables import ModelAxes
from attnscope.text.query_rules import in_order


@dataclass(frozen=True)
class _Task:
    """A cell to measure, and its answer once the model wrote one; the cell then includes it."""

    cell: Cell
    key: str
    answer: list[int] | None = None


_Work = Callable[[Sequence[_Task]], "dict[str, _Task | Result]"]


@dataclass
class CellMeasurer:
    """Measures batches of one model's cells. Sent to another process, it loads the model again there."""

    load: Callable[[], Lens]
    maker: CellMaker
    axes: ModelAxes
    writing: Writing | None = None
    """How the model writes answers first, if it does."""
    lens: Lens | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "lens": None}

    def __call__(self, batch: Batch) -> dict[str, Result]:
        tasks = [_Task(cell, key) for cell, key in batch if isinstance(cell, Cell) and isinstance(key, str)]
        if len(tasks) < len(batch):
            raise TypeError("measure was given something else than cells, each with its key")
        with not_blamed():  # on the engine
            return self._results(tasks)

    def _results(self, tasks: Sequence[_Task]) -> dict[str, Result]:
        """Answers are written, added to their cells, and measured; what fails in one step is not in the next."""
        steps: list[_Work] = [self._measured]
        if self.writing is not None:
            steps = [partial(self._written, self.writing), self._followed, *steps]
        results: dict[str, Result] = {}
        for step in steps:
            outcome = _in_pieces(step, tasks)
            results |= {key: each for key, each in outcome.items() if not isinstance(each, _Task)}
            tasks = [each for each in outcome.values() if isinstance(each, _Task)]
        return results

    def _ready(self) -> Lens:
        self.lens = self.lens or self.load()
        return self.lens

    def _written(self, writing: Writing, tasks: Sequence[_Task]) -> dict[str, _Task | Result]:
        lens = self._ready()
        with lens.clock.phase("generation"):
            answers = lens.generate_prepared(
                [(task.cell.text.text, task.cell.tokens) for task in tasks],
                writing.tokens,
                sample=writing.sample or False,
                seed=[writing.seed_of(task.cell) for task in tasks],
            )
        return {task.key: replace(task, answer=answer.ids) for task, answer in zip(tasks, answers, strict=True)}

    def _followed(self, tasks: Sequence[_Task]) -> dict[str, _Task | Result]:
        whole = {task.key: self.maker.answered(task.cell, task.answer or []) for task in tasks}
        return {task.key: replace(task, cell=self.maker.checked(whole[task.key])) for task in tasks}

    def _measured(self, tasks: Sequence[_Task]) -> dict[str, _Task | Result]:
        """In one forward; in several, if answers of different lengths would need much padding."""
        lengths = [len(task.cell.tokens) for task in tasks]
        groups = [range(len(tasks))] if self.writing is None else batches(lengths, Budget(len(tasks) * max(lengths)))
        results: dict[str, _Task | Result] = {}
        for group in groups:
            some = [tasks[number] for number in group]
            records = measure_cells(self._ready(), [task.cell for task in some], self.axes, self.axes.measures)
            results |= {task.key: MeasuredCell(record, task.answer) for task, record in zip(some, records, strict=True)}
        return results


def _in_pieces(work: _Work, tasks: Sequence[_Task]) -> dict[str, _Task | Result]:
    """All at once; in halves if that does not fit into memory; one by one if it fails."""
    if not tasks:
        return {}
    try:
        return work(tasks)
    except NoRoomError as error:
        if len(tasks) == 1:
            return {tasks[0].key: NoRoom(str(error))}
        half = len(tasks) // 2
        pieces = [tasks[:half], tasks[half:]]
    except StoppingError:
        raise
    except AttnscopeError as error:
        if len(tasks) == 1:
            return {tasks[0].key: RefusedCell(str(error))}
        pieces = [[each] for each in tasks]
    results: dict[str, _Task | Result] = {}
    for piece in pieces:
        results |= _in_pieces(work, piece)
    return results


def measure_cells(lens: Lens, cells: Sequence[Cell], axes: ModelAxes, measures: Sequence[str]) -> list[Record]:
    """Measure some cells in one forward pass."""
    return lens.measure_prepared(
        [(cell.text.text, cell.tokens) for cell in cells],
        [group.name for group in in_order(axes.queries, (group for cell in cells for group in cell.groups))],
        axes.layers,
        axes.heads,
        rows=[cell.rows for cell in cells],
        measures=measures,
        partial=True,
    )
