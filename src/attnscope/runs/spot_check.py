"""The spot check: are a run's own prompts measured exactly, and how far does rounding move their numbers?

Some cells are compared with eager attention, then measured again with the same weights in a wider number format. Half
the sum of the absolute differences over keys is the share of attention that rounding moved: no class's mass is off by
more in that prompt. Its mean over the sample is the floor below which a head's effect may be rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attnscope.errors import AttnscopeError, StoppingError
from attnscope.lens import Lens
from attnscope.records import RECEIVED
from attnscope.runs.cells import Cell
from attnscope.runs.manifest import Noise, Sample
from attnscope.runs.measuring import measure_cells
from attnscope.runs.store import Store
from attnscope.runs.tables import ModelAxes
from attnscope.text.query_rules import Group

MOST_CELLS = 4
SHARE = 0.1  # at most this share of the run's tokens,
TOKENS = 1024  # or this many tokens if that is more
COMPARED = 256  # compare at most this many tokens of a prompt with eager attention


def choose_sample(cells: Sequence[tuple[Cell, str]]) -> list[tuple[Cell, str]]:
    """A few cells from all over the run, cheap to measure again; at least one, if there are any."""
    if not cells:
        return []
    room = max(TOKENS, SHARE * sum(len(cell.tokens) for cell, _ in cells))
    places = np.unique(np.linspace(0, len(cells) - 1, MOST_CELLS).round().astype(int))
    chosen = sorted((cells[place] for place in places), key=lambda each: len(each[0].tokens))
    total = np.cumsum([len(cell.tokens) for cell, _ in chosen])
    return [each for place, each in enumerate(chosen) if place == 0 or total[place] <= room]


def check_sample(lens: Lens, cells: Sequence[tuple[Cell, str]], store: Store, axes: ModelAxes) -> Sample:
    """Check these measured cells; a model that differs from eager attention on them is refused."""
    proofs = [lens.compared(cell.ids[:COMPARED]) for cell, _ in cells]
    return Sample(
        cells=[key for _, key in cells],
        difference=max(proof.difference for proof in proofs if proof.difference is not None),
        row_sum_error=max(proof.row_sum_error for proof in proofs),
        tokens=COMPARED,
        rows=sum(proof.rows for proof in proofs),
        noise=_rounding(lens, cells, store, axes),
    )


def _rounding(lens: Lens, cells: Sequence[tuple[Cell, str]], store: Store, axes: ModelAxes) -> Noise:
    """How far rounding moves the attention of each head."""
    dtype = lens.loaded.dtype
    try:
        with lens.wider() as reference:
            moved = [each for cell, key in cells for each in _moved(lens, cell, key, store, axes)]
    except StoppingError:
        raise
    except (AttnscopeError, RuntimeError, TypeError, ValueError) as error:  # not all models compute in all formats
        return Noise(dtype=dtype, reason=str(error))
    by_title: dict[str, list[NDArray[np.float64]]] = {}
    for group, apart in moved:
        by_title.setdefault(group.series or group.name, []).append(apart)
    return Noise(
        dtype=dtype,
        reference=reference,
        moved={title: np.mean(each, 0).tolist() for title, each in by_title.items()},
        most={title: float(np.max(each)) for title, each in by_title.items()},
    )


def _moved(
    lens: Lens, cell: Cell, key: str, store: Store, axes: ModelAxes
) -> Iterator[tuple[Group, NDArray[np.float64]]]:
    """By group, (layers, heads): the share of attention that goes elsewhere at higher precision."""
    before = store.record(cell, key).received
    again = measure_cells(lens, [cell], axes, [RECEIVED])[0].received
    for group in cell.groups:
        wide, narrow = (each.at(queries=group.name).values.astype(np.float64) for each in (again, before))
        yield group, np.abs(wide - narrow).sum(-1) / 2
