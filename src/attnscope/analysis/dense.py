"""Rows of a table as arrays, by label: the order of rows does not matter, and every combination occurs exactly once.

Missing, duplicate, non-finite or out-of-range values are refused; the error names the table and the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from attnscope.analysis.run import Run, unusable

Floats = NDArray[np.float64]
Axes = Mapping[str, Sequence[Any]]
"""Columns and their labels, in the order of the array's axes."""

SHARE = (0.0, 1 + 1e-4)
"""The bounds of a share of attention, allowing for rounding."""


def dense(
    rows: pa.Table | pl.DataFrame,
    axes: Axes,
    values: Sequence[str],
    where: str,
    *,
    missing: bool = False,
    bounds: tuple[float, float] | None = None,
    lacking: NDArray[np.bool_] | None = None,
) -> list[Floats]:
    """One array per value column, with these axes. where: the table and the part of it, for errors.

    missing: values may be missing (NaN). bounds: the allowed range of values. lacking: of the first axes, combinations
    that have no rows; their values are NaN.
    """
    table = rows.to_arrow() if isinstance(rows, pl.DataFrame) else rows
    shape = tuple(len(labels) for labels in axes.values())
    flat = np.zeros(len(table), dtype=np.int64)
    for name, labels in axes.items():
        codes = _codes(table[name], labels)
        if (codes < 0).any():
            label = table[name][int(np.argmax(codes < 0))].as_py()
            raise unusable(where, f"it has a row for {name} {label!r}, which the run does not have")
        flat = flat * len(labels) + codes
    size = int(np.prod(shape))
    counts = np.bincount(flat, minlength=size)
    wanted = np.ones(size, dtype=np.int64)
    if lacking is not None:
        wanted = np.repeat(~lacking.ravel(), size // max(1, lacking.size)).astype(np.int64)
    if (counts != wanted).any():
        place = int(np.argmax(counts != wanted))
        problem = "it has no row" if counts[place] == 0 else f"it has {counts[place]} rows"
        raise unusable(where, f"{problem} for {_place(axes, shape, place)}")
    return [_column(table, name, flat, axes, shape, where, missing, bounds) for name in values]


def _column(
    table: pa.Table,
    name: str,
    flat: NDArray[np.int64],
    axes: Axes,
    shape: tuple[int, ...],
    where: str,
    missing: bool,
    bounds: tuple[float, float] | None,
) -> Floats:
    column = np.full(int(np.prod(shape)), np.nan)
    column[flat] = table[name].to_numpy()
    known = np.zeros(len(column), dtype=bool)
    known[flat] = True
    bad = known & (np.isinf(column) if missing else ~np.isfinite(column))
    problem = "is not a number"
    if bounds is not None and not bad.any():
        bad = (column < bounds[0]) | (column > bounds[1])
        problem = f"is not between {bounds[0]:g} and {bounds[1]:g}"
    if bad.any():
        place = int(np.argmax(bad))
        raise unusable(where, f"{name} of {_place(axes, shape, place)} {problem}: {column[place]:g}")
    return column.reshape(shape)


def _codes(column: pa.ChunkedArray, labels: Sequence[Any]) -> NDArray[np.int64]:
    """The index of each row's label; -1 if it is none of the labels."""
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.dictionary_encode()
    if isinstance(column.type, pa.DictionaryType):
        whole = column.unify_dictionaries().combine_chunks()
        whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
        places = {label: place for place, label in enumerate(labels)}
        code_of = np.array([places.get(name, -1) for name in whole.dictionary.to_pylist()], dtype=np.int64)
        codes: NDArray[np.int64] = code_of[whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)]
        return codes
    numbers, wanted = column.to_numpy().astype(np.int64), np.asarray(labels, dtype=np.int64)
    if not len(wanted):
        return np.full(len(numbers), -1)
    order = np.argsort(wanted, kind="stable")
    at = np.minimum(np.searchsorted(wanted[order], numbers), len(wanted) - 1)
    return np.where(wanted[order][at] == numbers, order[at], -1)


def _place(axes: Axes, shape: tuple[int, ...], flat: int) -> str:
    places = np.unravel_index(flat, shape)
    return ", ".join(f"{name} {labels[int(at)]}" for (name, labels), at in zip(axes.items(), places, strict=True))


def token_rows(run: Run, model: str, condition: str, columns: Sequence[str], prompt: int | None = None) -> pl.DataFrame:
    """Columns of the table `tokens`, by prompt and position: every token of all prompts, or of one, exactly once."""
    needed = list(dict.fromkeys(["prompt", "position", *columns]))
    rows = run.rows("tokens", model, condition, needed, prompt).sort("prompt", "position", maintain_order=True)
    cells = run.cells_of(model, condition)
    if prompt is not None:
        cells = cells.filter(pl.col("prompt") == prompt)
    counts = cells["tokens"].to_numpy()
    prompts = np.repeat(cells["prompt"].to_numpy(), counts)
    positions = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(count) for count in counts)])
    actual = rows["prompt"].to_numpy(), rows["position"].to_numpy()
    if not (np.array_equal(actual[0], prompts) and np.array_equal(actual[1], positions)):
        both = min(len(rows), len(prompts))
        apart = (actual[0][:both] != prompts[:both]) | (actual[1][:both] != positions[:both])
        at = int(np.argmax(apart)) if apart.any() else both
        place = f"prompt {prompts[at]}, position {positions[at]}" if at < len(prompts) else "prompts it should not have"
        where = f"{run.path / 'tokens.parquet'}: {model}, {condition}"
        raise unusable(where, f"its rows are not the run's tokens, from {place} on")
    return rows.select(list(columns))
