"""The engine: cells of one model measured in this process, batch by batch, each stored as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from attnscope.attention.reading import Reading
from attnscope.errors import AttnscopeError, NoRoomError
from attnscope.lens import Lens
from attnscope.runs.batches import Budget, batches
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.folder import Measured, Refused, RunFolder
from attnscope.runs.tables import Shape

Tick = Callable[[int], None]
"""Told how many tokens are done."""


@dataclass
class Work:
    """What is to be measured of one model."""

    cells: Sequence[tuple[Cell, str]]
    """Each with its key."""
    shape: Shape
    entropy: bool
    patterns: bool
    generate: int | None
    no_room: dict[str, str] = field(default_factory=dict)
    """Cells that did not fit memory, and what was said: another time they may, so nothing is stored of them."""


def measure_cells(lens: Lens, maker: CellMaker, work: Work, folder: RunFolder, limit: Budget, tick: Tick) -> None:
    """Every cell of the work that the folder has not yet; of those that can't be measured, the reason is stored."""
    unique = {key: (cell, key) for cell, key in reversed(work.cells)}  # the same prompt twice is measured once
    missing = [unique[key] for key in dict.fromkeys(key for _, key in work.cells) if not folder.has_cell(key)]
    for numbers in batches([len(cell.tokens) for cell, _ in missing], limit):
        batch = [missing[number] for number in numbers]
        folder.write_cells(_results(lens, maker, work, batch))
        tick(sum(len(cell.tokens) for cell, _ in batch))


def _results(
    lens: Lens, maker: CellMaker, work: Work, batch: Sequence[tuple[Cell, str]]
) -> dict[str, Measured | Refused]:
    """What came of a batch, cell by cell. One that does not fit is split; in one that fails, one cell is to blame."""
    try:
        return _measure(lens, maker, work, batch)
    except NoRoomError as error:
        if len(batch) == 1:
            work.no_room[batch[0][1]] = str(error)
            return {}
        half = len(batch) // 2
        pieces = [batch[:half], batch[half:]]
    except AttnscopeError as error:
        if len(batch) == 1:
            return {batch[0][1]: Refused(str(error))}
        pieces = [[each] for each in batch]
    found: dict[str, Measured | Refused] = {}
    for piece in pieces:
        found |= _results(lens, maker, work, piece)
    return found


def _measure(
    lens: Lens, maker: CellMaker, work: Work, batch: Sequence[tuple[Cell, str]]
) -> dict[str, Measured | Refused]:
    answers: list[list[int] | None] = [None] * len(batch)
    cells = [cell for cell, _ in batch]
    if work.generate is not None:
        answers = [lens.answer(cell.ids, work.generate) for cell in cells]
        cells = [maker.answered(cell, ids or []) for cell, ids in zip(cells, answers, strict=True)]
    readings = lens.measure_prepared(
        [(cell.text.text, cell.tokens) for cell in cells],
        work.shape.queries,
        work.shape.layers,
        work.shape.heads,
        rows=[cell.rows for cell in cells],
        entropy=work.entropy,
        patterns=work.patterns,
    )
    return {key: _measured(reading, answer) for (_, key), reading, answer in zip(batch, readings, answers, strict=True)}


def _measured(reading: Reading, answer: list[int] | None) -> Measured:
    """Layers that share a view keep it once."""
    pairs = np.stack([reading.uniform, reading.seen], 1)  # (layers, 2, heads or 1, groups, keys)
    numbers: dict[bytes, int] = {}
    view = np.array([numbers.setdefault(pair.tobytes(), len(numbers)) for pair in pairs], dtype=np.int32)
    first = [int(np.flatnonzero(view == number)[0]) for number in range(len(numbers))]
    return Measured(
        received=reading.received,
        view=view,
        uniform=reading.uniform[first],
        seen=reading.seen[first],
        entropy=reading.entropy,
        patterns=reading.patterns,
        answer=None if answer is None else np.asarray(answer, dtype=np.int64),
    )
