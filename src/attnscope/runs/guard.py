"""Stands between an engine and the store: what an engine hands over is checked before any of it is written.

A run could not be continued with a shard that has foreign cells or numbers of the wrong shape in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.errors import Parameter, PluginError
from attnscope.measures import MEASURES
from attnscope.records import DEFINED, HEAD_AXES, KEY_AXES, SEEN, UNIFORM, VIEW, Record
from attnscope.registry import not_blamed
from attnscope.runs.cells import Cell
from attnscope.runs.engines import ENGINES, Batch, Job, Measurer
from attnscope.runs.shards import axes_of
from attnscope.runs.store import MeasuredCell, NoRoom, RefusedCell, Results, ScoredTrial, Store
from attnscope.runs.tables import ModelAxes
from attnscope.runs.trials import Trial


class Guard:
    """Has one engine measure some batches.

    wrong: (a result, what it is of) -> what is wrong with it, as in "stores a record of layers [0], not [0, 1]", or
    None. heard: called with the number of tokens of each batch that the engine reports done.
    """

    def __init__(
        self,
        engine: str,
        batches: Sequence[Batch],
        store: Store,
        *,
        wrong: Callable[[MeasuredCell | ScoredTrial, Any], str | None],
        heard: Callable[[int], None],
    ) -> None:
        self.engine, self.batches = engine, tuple(batches)
        self._store, self._wrong, self._heard = store, wrong, heard
        self._cells = {key: cell for batch in batches for cell, key in batch}
        self._no_room: dict[str, str] = {}

    def run(self, measure: Measurer) -> dict[str, str]:
        """Have every batch measured. Returns the cells that did not fit into memory, with the error."""
        engine = ENGINES.find(self.engine, Parameter("engine"))
        with ENGINES.blamed(self.engine, "run"):
            engine.run(Job(self.batches, measure, self, self.done))
        no_room = {key: reason for key, reason in self._no_room.items() if key not in self._store}
        left = sum(any(key not in self._store and key not in no_room for _, key in batch) for batch in self.batches)
        if left:
            what = f"left {left} of {len(self.batches)} batches unmeasured"
            raise ENGINES.mistake(self.engine, "run", what, "every batch measured and stored")
        return no_room

    def write(self, results: Results) -> None:
        """Store the results of a batch: all of them, or none. A cell that is stored already stays as it is."""
        self._note(results)
        for key, result in results.items():
            if isinstance(result, MeasuredCell | ScoredTrial):
                problem = self._wrong(result, self._cells[key])
                if problem is not None:
                    raise self._mistake(problem)
        with not_blamed():
            self._store.write({key: result for key, result in results.items() if key not in self._store})

    def done(self, batch: Batch, results: Results) -> None:
        """A batch is stored, as far as it fitted into memory."""
        self._note(results)
        tokens = sum(cell.size for cell, _ in batch)
        with not_blamed():
            self._heard(tokens)

    def _note(self, results: Any) -> None:
        """Refuse what are no results of the job's cells, and note the cells that did not fit."""
        if not isinstance(results, Mapping):
            raise self._mistake(f"hands over {short(results)}")
        for key, result in results.items():
            if key not in self._cells:
                raise self._mistake(f"hands over a cell {short(key)}, which is in none of its batches")
            if not isinstance(result, MeasuredCell | ScoredTrial | RefusedCell | NoRoom):
                raise self._mistake(f"hands over {short(result)} for a cell")
            if isinstance(result, RefusedCell | NoRoom) and not (isinstance(result.reason, str) and result.reason):
                raise self._mistake(f"hands over a cell without numbers for the reason {short(result.reason)}")
        self._no_room |= {key: result.reason for key, result in results.items() if isinstance(result, NoRoom)}

    def _mistake(self, what: str) -> PluginError:
        return ENGINES.mistake(self.engine, "run", what, "the results of a batch as `measure` returns them")


def wrong_cell(
    result: object, cell: Cell, axes: ModelAxes, answered: Callable[[Cell, Sequence[int]], Cell] | None
) -> str | None:
    """What is wrong with the result of a cell, for `Guard`. answered: a cell with the answer that the model wrote; None
    if it writes none.
    """
    if not isinstance(result, MeasuredCell):
        return f"hands over {short(result)} for a cell"
    problem = _problem(result, cell, axes, answered)
    return None if problem is None else f"stores a record {problem}"


def wrong_trial(result: object, trial: Trial) -> str | None:
    """What is wrong with the result of a trial, for `Guard`."""
    if not isinstance(result, ScoredTrial):
        return f"hands over {short(result)} for a trial"
    variants, tokens = 1 + len(trial.places), len(trial.answers[0].answer_ids)
    arrays = [*(getattr(each, part) for each in result.answers for part in ("log_probs", "likeliest", "kl"))]
    if len(result.answers) != variants or any(np.shape(each) != (tokens,) for each in arrays):
        return "stores scores of other variants or tokens than the trial's"
    if np.shape(result.choices) != (variants, len(trial.answers)):
        return "stores scores of other choices than the trial's"
    return (
        None
        if all(np.isfinite(each).all() for each in (*arrays, result.choices))
        else "stores scores that are not finite"
    )


def _problem(
    result: MeasuredCell, cell: Cell, axes: ModelAxes, answered: Callable[[Cell, Sequence[int]], Cell] | None
) -> str | None:
    """What is wrong with a cell's numbers, as in "of layers [0], not [0, 1]"."""
    record: Any = result.record
    if not isinstance(record, Record):
        return f"that is {short(record)}"
    if (result.answer is None) != (answered is None):
        return "without an answer" if answered else "with an answer that was not asked for"
    if [token.id for token in record.tokens] != [*cell.ids, *(result.answer or ())]:
        return "of other tokens than the cell's"
    whole = cell if answered is None else answered(cell, result.answer or ())
    for axis, wanted in (("layers", axes.layers), ("heads", axes.heads), ("queries", whole.queries)):
        if list(getattr(record, axis)) != list(wanted):
            return f"of {axis} {short(list(getattr(record, axis)))}, not {short(list(wanted))}"
    dimensions = _dimensions(axes.measures)
    if set(record.arrays) != set(dimensions):
        return f"with {', '.join(map(str, record.arrays))}, not {', '.join(dimensions)}"
    sizes = {"view": len(record.arrays[SEEN]), "layer": len(axes.layers), "head": len(axes.heads)}
    sizes |= {"queries": len(whole.queries), "key": len(record.tokens)}
    for name, count in dimensions.items():
        problem = _array_problem(name, record.arrays[name], axes_of(name, count), sizes)
        if problem is not None:
            return f"whose '{name}' {problem}"
    view = record.arrays[VIEW]
    return None if 0 <= view.min() <= view.max() < sizes["view"] else f"whose views are {short(view.tolist())}"


def _dimensions(measures: Sequence[str]) -> dict[str, int]:
    """The arrays of a record with these measures, and how many axes each has."""
    dimensions = {VIEW: 1, SEEN: len(KEY_AXES)}
    for name in measures:
        measure = MEASURES.members[name]
        dimensions[name] = dimensions[f"{name}{UNIFORM}"] = len(HEAD_AXES) + len(measure.axes)
        if measure.partial:
            dimensions[f"{name}{DEFINED}"] = len(HEAD_AXES)
    return dimensions


def _array_problem(name: str, array: NDArray[Any], axes: Sequence[str], sizes: Mapping[str, int]) -> str | None:
    kinds = "iu" if name == VIEW else "f"
    if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
        return f"is {short(array)}"
    shape = tuple(sizes[axis] for axis in axes)
    for_all_heads = (shape[0], 1, *shape[2:])
    if array.shape != shape and not (axes[0] == "view" and array.shape == for_all_heads):
        return f"has the shape {array.shape}, not {shape}"
    return None if np.isfinite(array).all() else "is not finite"
