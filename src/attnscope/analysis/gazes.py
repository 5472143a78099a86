"""What the keys of each prompt receive, read prompt by prompt: a run may be larger than memory, one prompt is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnscope.analysis.run import Run

_KEYS = ["model", "condition", "queries", "prompt", "layer", "head", "view"]


def _nothing() -> NDArray[np.float64]:
    return np.zeros(0)


@dataclass(frozen=True)
class Heads:
    """Some heads of one model, seen through one query group. over: the queries that can see a key, or all."""

    model: str
    queries: str
    layers: Sequence[int]
    heads: Sequence[int]
    over: str = "visible"
    outlook: bool = False
    """Also what the queries see: `uniform` and `seen` of each gaze."""


@dataclass(frozen=True)
class Gaze:
    """One prompt under one condition."""

    condition: str
    prompt: int
    attention: NDArray[np.float64]
    """(layers, heads, keys): mean over the queries; NaN where no query sees the key."""
    base: NDArray[np.int64]
    """The same token in the base prompt, or -1."""
    inserted: NDArray[np.bool_]
    uniform: NDArray[np.float64] = field(default_factory=_nothing)
    """(layers, heads, keys), if asked for: what a gaze at all visible keys alike would give."""
    seen: NDArray[np.float64] = field(default_factory=_nothing)
    """(layers, heads, keys), if asked for: the share of queries that see each key."""


def gazes(run: Run, chosen: Heads, condition: str, prompt: int | None = None) -> Iterator[Gaze]:
    """In the order of prompts; all of them, or one."""
    wanted = ["seen"] if chosen.over == "visible" or chosen.outlook else []
    views = _views(run, chosen, condition, [*wanted, *(["uniform"] if chosen.outlook else [])])
    tokens = _tokens(run, chosen.model, condition)
    held: dict[int, tuple[NDArray[np.float64], int]] = {}
    for numbers, rows in _received(run, chosen, condition, prompt):
        ends = np.flatnonzero(np.diff(numbers["prompt"], append=-1)) + 1
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            place = int(numbers["prompt"][start])
            part = rows.slice(start, end - start).flatten().to_numpy().reshape(end - start, -1)
            run.refuse_if_spoilt(part, "received", f"{chosen.model}, {condition}, prompt {place}")
            whole, missing = held.pop(place, (None, len(chosen.layers) * len(chosen.heads)))
            if whole is None:
                shape = (len(chosen.layers), len(chosen.heads), part.shape[1])
                whole = np.full((3 if chosen.outlook else 1, *shape), np.nan)
            layers, heads, numbered = (numbers[name][start:end].tolist() for name in ("layer", "head", "view"))
            for row, layer, head, view in zip(part, layers, heads, numbered, strict=True):
                at = chosen.layers.index(layer), chosen.heads.index(head)
                seen = _view(views, "seen", place, view, head)
                values = row.astype(np.float64)
                if chosen.over == "visible":
                    values = np.divide(values, seen, out=np.full_like(values, np.nan), where=seen > 0)
                whole[0][at] = values
                if chosen.outlook:
                    whole[1][at], whole[2][at] = _view(views, "uniform", place, view, head), seen
            missing -= end - start
            if missing:
                held[place] = (whole, missing)
            else:
                yield Gaze(condition, place, whole[0], *tokens[place], *whole[1:])


def _received(
    run: Run, chosen: Heads, condition: str, prompt: int | None
) -> Iterator[tuple[dict[str, NDArray[Any]], pa.ListArray]]:
    """The wanted rows of each row group that has some: numbers by column, and what the keys receive."""
    wanted = (
        (pl.col("model") == chosen.model)
        & (pl.col("condition") == condition)
        & (pl.col("queries") == chosen.queries)
        & pl.col("layer").is_in(list(chosen.layers))
        & pl.col("head").is_in(list(chosen.heads))
    )
    if prompt is not None:
        wanted &= pl.col("prompt") == prompt
    with pq.ParquetFile(run.path / "received.parquet", pre_buffer=False) as file:
        for group in range(file.num_row_groups):
            keys: Any = pl.from_arrow(file.read_row_group(group, columns=_KEYS, use_threads=False))
            names = ("model", "condition", "queries")
            rows = keys.with_columns(pl.col(*names).cast(pl.String)).with_row_index("row").filter(wanted)
            if len(rows):
                received = file.read_row_group(group, columns=["received"], use_threads=False)["received"]
                numbers = {name: rows[name].to_numpy() for name in ("prompt", "layer", "head", "view")}
                yield numbers, received.combine_chunks().take(pa.array(rows["row"].to_numpy()))


def paired(run: Run, chosen: Heads, one: str, two: str) -> Iterator[tuple[Gaze, Gaze]]:
    """The prompts that both conditions have."""
    others = gazes(run, chosen, two)
    other = next(others, None)
    for gaze in gazes(run, chosen, one):
        while other is not None and other.prompt < gaze.prompt:
            other = next(others, None)
        if other is not None and other.prompt == gaze.prompt:
            yield gaze, other


Views = dict[str, dict[tuple[int, int, int], NDArray[np.float64]]]


def _view(views: Views, column: str, prompt: int, view: int, head: int) -> NDArray[np.float64]:
    held = views.get(column, {})
    found = held.get((prompt, view, head))
    return held.get((prompt, view, -1), _nothing()) if found is None else found


def _views(run: Run, chosen: Heads, condition: str, columns: Sequence[str]) -> Views:
    """By column: (prompt, view, head or -1) -> one number a key."""
    if not columns:
        return {}
    rows = (
        run.table("views")
        .filter(pl.col("model") == chosen.model, pl.col("queries") == chosen.queries, pl.col("condition") == condition)
        .select("prompt", "view", pl.col("head").fill_null(-1), *columns)
        .collect()
    )
    keys = list(zip(rows["prompt"], rows["view"], rows["head"], strict=True))
    return {
        name: {key: each.to_numpy().astype(np.float64) for key, each in zip(keys, rows[name], strict=True)}
        for name in columns
    }


def _tokens(run: Run, model: str, condition: str) -> dict[int, tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    rows = (
        run.table("tokens")
        .filter(pl.col("model") == model, pl.col("condition") == condition)
        .group_by("prompt", maintain_order=True)
        .agg(pl.col("base_position").fill_null(-1).cast(pl.Int64), inserted=pl.col("segment") == "inserted")
        .collect()
    )
    return {prompt: (base.to_numpy(), inserted.to_numpy()) for prompt, base, inserted in _rows(rows)}


def _rows(frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Rows whose lists stay series: no number becomes a Python object."""
    return zip(*(frame[name] for name in frame.columns), strict=True)
