"""What the keys of each prompt receive, read prompt by prompt: a run may be larger than memory, one prompt is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.run import Run
from attnscope.runs.shards import CellReader
from attnscope.text.segments import INSERTED

Numbers = NDArray[np.float64]


def _nothing() -> Numbers:
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
    attention: Numbers
    """(layers, heads, keys): mean over the queries; NaN where no query sees the key."""
    base: NDArray[np.int64]
    """The same token in the base prompt, or -1."""
    inserted: NDArray[np.bool_]
    uniform: Numbers = field(default_factory=_nothing)
    """(layers, heads, keys), if asked for: what a gaze at all visible keys alike would give."""
    seen: Numbers = field(default_factory=_nothing)
    """(layers, heads, keys), if asked for: the share of queries that see each key."""


@dataclass(frozen=True)
class Tokens:
    """Every token of one model under one condition, prompt after prompt."""

    prompts: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Where each prompt's tokens end."""
    base: NDArray[np.int64]
    """The same token in the base prompt, or -1."""
    inserted: NDArray[np.bool_]

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], self.ends[:-1]])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ends - self.starts

    @property
    def rows(self) -> NDArray[np.int64]:
        """For each token the place of its prompt."""
        return np.repeat(np.arange(len(self.prompts)), self.lengths)

    @property
    def positions(self) -> NDArray[np.int64]:
        """For each token its position in its prompt."""
        return np.arange(len(self.base)) - np.repeat(self.starts, self.lengths)


@lru_cache(maxsize=16)
def tokens_of(run: Run, model: str, condition: str) -> Tokens:
    """In the order of prompts."""
    cells = run.cells_of(model, condition)
    rows = run.rows("tokens", model, condition, ["prompt", "base_position", "segment"])
    rows = rows.sort("prompt", maintain_order=True)
    return Tokens(
        cells["prompt"].to_numpy().astype(np.int64),
        np.cumsum(cells["tokens"].to_numpy().astype(np.int64)),
        rows["base_position"].fill_null(-1).to_numpy().astype(np.int64),
        (rows["segment"] == INSERTED).to_numpy(),
    )


def gazes(run: Run, chosen: Heads, condition: str, prompt: int | None = None) -> Iterator[Gaze]:
    """In the order of prompts; all of them, or one."""
    held = tokens_of(run, chosen.model, condition)
    places = {int(number): place for place, number in enumerate(held.prompts)}
    wanted = list(places) if prompt is None else [prompt] if prompt in places else []
    keys = dict(run.cells_of(chosen.model, condition).select("prompt", "cell").iter_rows())
    for number in wanted:
        mine = np.s_[held.starts[places[number]] : held.ends[places[number]]]
        if run.cells is not None:
            found = _from_cell(run, run.cells, keys[number], chosen)
        else:
            found = _from_tables(run, chosen, condition, number)
        run.refuse_if_spoilt(found[0], "received", f"{chosen.model}, {condition}, prompt {number}")
        if chosen.over == "visible":
            found[0] = _over_visible(found[0], found[2])
        more = found[1:] if chosen.outlook else []
        yield Gaze(condition, number, found[0], held.base[mine], held.inserted[mine], *more)


@lru_cache(maxsize=8)
def head_along(run: Run, chosen: Heads, condition: str) -> Numbers:
    """What one head gives to every token of `tokens_of`: all prompts at once. chosen: one layer, one head."""
    if run.cells is None:
        return np.concatenate([gaze.attention[0, 0] for gaze in gazes(run, chosen, condition)] or [_nothing()])
    layer, head = _places(run, chosen)
    group = run.study.measure.queries.index(chosen.queries)
    cells = run.cells_of(chosen.model, condition)["cell"]
    received = [run.cells.part(key, "received")[layer[0], head[0]][group] for key in cells]
    flat: Numbers = np.concatenate(received or [_nothing()]).astype(np.float64)
    run.refuse_if_spoilt(flat, "received", f"{chosen.model}, {condition}")
    if chosen.over != "visible":
        return flat
    return _over_visible(flat, _seen_along(run, chosen.model, condition, group, layer[0], head[0]))


def _seen_along(run: Run, model: str, condition: str, group: int, layer: int, head: int) -> Numbers:
    """The share of queries that see each token of `tokens_of`. Most layers and heads see the same: read once."""
    views, alike = _outlooks(run, model, condition)
    return _seen_by(run, model, condition, group, views[layer], -1 if alike else head)


@lru_cache(maxsize=16)
def _outlooks(run: Run, model: str, condition: str) -> tuple[list[tuple[int, ...]], bool]:
    """For each layer the number of its view, prompt by prompt; and whether all heads see the same."""
    assert run.cells is not None  # noqa: S101
    cells = run.cells_of(model, condition)["cell"]
    views = np.stack([run.cells.part(key, "view")[:] for key in cells], 1) if len(cells) else np.zeros((0, 0), int)
    alike = all(run.cells.part(key, "seen").get_shape()[1] == 1 for key in cells)
    return [tuple(row) for row in views.tolist()], alike


@lru_cache(maxsize=32)
def _seen_by(run: Run, model: str, condition: str, group: int, views: tuple[int, ...], head: int) -> Numbers:
    assert run.cells is not None  # noqa: S101
    cells = run.cells_of(model, condition)["cell"]
    seen = [run.cells.part(key, "seen")[view, max(0, head)][group] for key, view in zip(cells, views, strict=True)]
    found: Numbers = np.concatenate(seen or [_nothing()])
    return found


def paired(run: Run, chosen: Heads, one: str, two: str) -> Iterator[tuple[Gaze, Gaze]]:
    """The prompts that both conditions have."""
    others = run.prompts(chosen.model, two)
    for gaze in gazes(run, chosen, one):
        if gaze.prompt in others:
            yield gaze, next(gazes(run, chosen, two, gaze.prompt))


def _over_visible(received: Numbers, seen: Any) -> Numbers:
    found: Numbers = np.divide(received, seen, out=np.full_like(received, np.nan), where=seen > 0)
    return found


def _places(run: Run, chosen: Heads) -> tuple[list[int], list[int]]:
    layers, heads = run.layers(chosen.model), run.heads(chosen.model)
    return [layers.index(each) for each in chosen.layers], [heads.index(each) for each in chosen.heads]


def _from_cell(run: Run, cells: CellReader, key: str, chosen: Heads) -> list[Numbers]:
    """received, uniform, seen: (layers, heads, keys) of one prompt."""
    layers, heads = _places(run, chosen)
    group = run.study.measure.queries.index(chosen.queries)
    view = cells.part(key, "view")[:]
    whole = cells.part(key, "received")[:]
    made = [whole[np.ix_(layers, heads)][:, :, group].astype(np.float64)]
    for name in ("uniform", "seen") if chosen.outlook or chosen.over == "visible" else ():
        held = cells.part(key, name)[:][view[layers]]  # (layers, heads or 1, groups, keys)
        part = held[:, heads] if held.shape[1] > 1 else np.repeat(held, len(heads), 1)
        made.append(part[:, :, group].astype(np.float64))
    return made


def _from_tables(run: Run, chosen: Heads, condition: str, prompt: int) -> list[Numbers]:
    """The same, where cells are not at hand."""
    columns = ["queries", "layer", "head", "view", "received"]
    rows = run.rows("received", chosen.model, condition, columns, prompt).filter(
        pl.col("queries") == chosen.queries,
        pl.col("layer").is_in(list(chosen.layers)),
        pl.col("head").is_in(list(chosen.heads)),
    )
    views = run.rows("views", chosen.model, condition, ["queries", "view", "head", "uniform", "seen"], prompt)
    known = {
        (view, head): (uniform.to_numpy(), seen.to_numpy())
        for view, head, uniform, seen in _rows(
            views.filter(pl.col("queries") == chosen.queries)
            .with_columns(pl.col("head").fill_null(-1))
            .select("view", "head", "uniform", "seen")
        )
    }
    keys = len(rows["received"][0])
    made = np.full((3, len(chosen.layers), len(chosen.heads), keys), np.nan)
    for layer, head, view, received in _rows(rows.select("layer", "head", "view", "received")):
        at = chosen.layers.index(layer), chosen.heads.index(head)
        made[:, *at] = received.to_numpy(), *known.get((view, head), known.get((view, -1), (np.nan, np.nan)))
    return list(made)


def _rows(frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Rows whose lists stay series: no number becomes a Python object."""
    return zip(*(frame[name] for name in frame.columns), strict=True)
