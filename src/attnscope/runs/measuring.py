"""Measures the cells of a batch. One that does not fit memory is split; in one that fails, one cell is to blame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnscope.errors import AttnscopeError, NoRoomError
from attnscope.lens import Lens
from attnscope.records import Record
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.engines import Batch
from attnscope.runs.store import Measured, NoRoom, Refused, Result
from attnscope.runs.tables import Shape


@dataclass
class CellMeasurer:
    """Measures batches of one model's cells. Sent to another process, it leaves its model behind and loads it there."""

    load: Callable[[], Lens]
    maker: CellMaker
    shape: Shape
    generate: int | None = None
    """How many tokens of an answer the model writes first."""
    lens: Lens | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "lens": None}

    def __call__(self, batch: Batch) -> dict[str, Result]:
        try:
            return self._measured(batch)
        except NoRoomError as error:
            if len(batch) == 1:
                return {batch[0][1]: NoRoom(str(error))}
            half = len(batch) // 2
            pieces: Sequence[Batch] = [batch[:half], batch[half:]]
        except AttnscopeError as error:
            if len(batch) == 1:
                return {batch[0][1]: Refused(str(error))}
            pieces = [(each,) for each in batch]
        results: dict[str, Result] = {}
        for piece in pieces:
            results |= self(piece)
        return results

    def _measured(self, batch: Batch) -> dict[str, Result]:
        self.lens = self.lens or self.load()
        answers: list[list[int] | None] = [None] * len(batch)
        cells = [cell for cell, _ in batch]
        if self.generate is not None:
            answers = [self.lens.answer(cell.ids, self.generate) for cell in cells]
            cells = [self.maker.answered(cell, ids or []) for cell, ids in zip(cells, answers, strict=True)]
        records = measured_records(self.lens, cells, self.shape, self.shape.measures)
        return {key: Measured(record, answer) for (_, key), record, answer in zip(batch, records, answers, strict=True)}


def measured_records(lens: Lens, cells: Sequence[Cell], shape: Shape, measures: Sequence[str]) -> list[Record]:
    """What a lens measures of some cells, in one forward."""
    return lens.measure_prepared(
        [(cell.text.text, cell.tokens) for cell in cells],
        shape.queries,
        shape.layers,
        shape.heads,
        rows=[cell.rows for cell in cells],
        measures=measures,
    )
