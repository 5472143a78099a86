"""Measures the cells of a batch. If it does not fit into memory, it is split; if it fails, cells go one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnscope.errors import AttnscopeError, NoRoomError, PluginError
from attnscope.lens import Lens
from attnscope.records import Record
from attnscope.registry import not_blamed
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.engines import Batch
from attnscope.runs.store import MeasuredCell, NoRoom, RefusedCell, Result
from attnscope.runs.tables import ModelAxes


@dataclass
class CellMeasurer:
    """Measures batches of one model's cells. Sent to another process, it loads the model again there."""

    load: Callable[[], Lens]
    maker: CellMaker
    axes: ModelAxes
    generate: int | None = None
    """How many tokens of an answer the model generates first."""
    lens: Lens | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "lens": None}

    def __call__(self, batch: Batch) -> dict[str, Result]:
        if not all(isinstance(cell, Cell) and isinstance(key, str) for cell, key in batch):
            raise TypeError("measure was given something else than cells, each with its key")
        with not_blamed():  # on the engine
            return self._results(batch)

    def _results(self, batch: Batch) -> dict[str, Result]:
        try:
            return self._measure(batch)
        except NoRoomError as error:
            if len(batch) == 1:
                return {batch[0][1]: NoRoom(str(error))}
            half = len(batch) // 2
            pieces: Sequence[Batch] = [batch[:half], batch[half:]]
        except PluginError:
            raise
        except AttnscopeError as error:
            if len(batch) == 1:
                return {batch[0][1]: RefusedCell(str(error))}
            pieces = [(each,) for each in batch]
        results: dict[str, Result] = {}
        for piece in pieces:
            results |= self._results(piece)
        return results

    def _measure(self, batch: Batch) -> dict[str, Result]:
        self.lens = self.lens or self.load()
        answers: list[list[int] | None] = [None] * len(batch)
        cells = [cell for cell, _ in batch]
        if self.generate is not None:
            with self.lens.clock.phase("generation"):
                answers = [self.lens.answer(cell.ids, self.generate) for cell in cells]
            cells = [self.maker.answered(cell, ids or []) for cell, ids in zip(cells, answers, strict=True)]
        records = measure_cells(self.lens, cells, self.axes, self.axes.measures)
        return {
            key: MeasuredCell(record, answer) for (_, key), record, answer in zip(batch, records, answers, strict=True)
        }


def measure_cells(lens: Lens, cells: Sequence[Cell], axes: ModelAxes, measures: Sequence[str]) -> list[Record]:
    """Measure some cells in one forward pass."""
    return lens.measure_prepared(
        [(cell.text.text, cell.tokens) for cell in cells],
        axes.queries,
        axes.layers,
        axes.heads,
        rows=[cell.rows for cell in cells],
        measures=measures,
    )
