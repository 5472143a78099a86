"""A second look at some cells of a run: are its own prompts read exactly, and how far does rounding move their numbers?

Some cells are compared with eager attention, then measured again by the same weights in a wider number format. Half
the sum of the differences over keys is the share of attention that rounding moved: no class's mass is off by more
in that prompt. Its mean over the sample is the floor under which an effect of a head is not told from rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnscope.errors import AttnscopeError
from attnscope.lens import Lens
from attnscope.runs.cells import Cell
from attnscope.runs.folder import RunFolder
from attnscope.runs.tables import Shape

MOST_CELLS = 4
SHARE = 0.1  # of the run's tokens, at most,
TOKENS = 1024  # if these are more than so many
COMPARED = 256  # tokens of a prompt at most, in the comparison with eager attention


def sampled(cells: Sequence[tuple[Cell, str]]) -> list[tuple[Cell, str]]:
    """Some cells from all over the run, few enough to be cheap; at least one, if there is one."""
    if not cells:
        return []
    room = max(TOKENS, SHARE * sum(len(cell.tokens) for cell, _ in cells))
    places = np.unique(np.linspace(0, len(cells) - 1, MOST_CELLS).round().astype(int))
    chosen = sorted((cells[place] for place in places), key=lambda each: len(each[0].tokens))
    total = np.cumsum([len(cell.tokens) for cell, _ in chosen])
    return [each for place, each in enumerate(chosen) if place == 0 or total[place] <= room]


def look_again(lens: Lens, cells: Sequence[tuple[Cell, str]], folder: RunFolder, shape: Shape) -> dict[str, Any]:
    """What these measured cells show, as plain data; a model that differs from eager attention on them is refused.

    Afterwards the lens computes in another number format: let it go.
    """
    parities = [lens.compared(cell.ids[:COMPARED]) for cell, _ in cells]
    return {
        "cells": [key for _, key in cells],
        "difference": max(parity.difference for parity in parities),
        "row_sum_error": max(parity.row_sum_error for parity in parities),
        "tokens": COMPARED,
        "rows": sum(parity.rows for parity in parities),
        "noise": _rounding(lens, cells, folder, shape),
    }


def _rounding(lens: Lens, cells: Sequence[tuple[Cell, str]], folder: RunFolder, shape: Shape) -> dict[str, Any]:
    """How far rounding moves attention, head by head."""
    dtype = lens.loaded.dtype
    try:
        reference = lens.widen()
        moved = [_moved(lens, cell, key, folder, shape) for cell, key in cells]
    except (AttnscopeError, RuntimeError, TypeError, ValueError) as error:  # not every model computes in every format
        return {"dtype": dtype, "reason": str(error)}
    mean, most = np.mean(moved, 0), np.max(moved, (0, 1, 2))  # (layers, heads, groups), (groups,)
    return {
        "dtype": dtype,
        "reference": reference,
        "moved": {name: mean[:, :, place].tolist() for place, name in enumerate(shape.queries)},
        "most": {name: float(most[place]) for place, name in enumerate(shape.queries)},
    }


def _moved(lens: Lens, cell: Cell, key: str, folder: RunFolder, shape: Shape) -> Any:
    """(layers, heads, groups): the share of attention that is elsewhere when more digits are kept."""
    before = folder.read_cell(key)
    if before is None:
        raise AttnscopeError("a measured cell is gone", where=key[:12], allowed="cells as written", todo="run again")
    again = lens.measure_prepared(
        [(cell.text.text, cell.tokens)], shape.queries, shape.layers, shape.heads, rows=[cell.rows]
    )[0]
    return np.abs(again.received.astype(np.float64) - before.received).sum(-1) / 2
