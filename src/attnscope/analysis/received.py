"""The attention that keys receive, read one prompt at a time: a run may be larger than memory, one prompt is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.dense import SHARE, token_rows
from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.records import RECEIVED, SEEN, UNIFORM, VIEW
from attnscope.records.rest import shares_of_rest
from attnscope.runs.shards import SHARDS, Shard
from attnscope.text.segments import INSERTED

Floats = NDArray[np.float64]


def _nothing() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True)
class HeadChoice:
    """Some heads of one model, for one query group. over: average over the queries that see a key (visible), or all."""

    model: str
    queries: str
    layers: Sequence[int]
    heads: Sequence[int]
    over: str = "visible"
    with_views: bool = False
    """Also read what the queries see: `uniform` and `seen` of each prompt."""
    every_token: bool = False
    """Read all attention, even if the study leaves tokens out; otherwise what is read are shares of the rest."""


@dataclass(frozen=True)
class PromptAttention:
    """Attention on the tokens of one prompt under one condition."""

    condition: str
    prompt: int
    attention: Floats
    """(layers, heads, keys): mean over the queries; NaN where no query sees the key, or where it is left out."""
    base: NDArray[np.int64]
    """The position of the same token in the base prompt, or -1."""
    inserted: NDArray[np.bool_]
    uniform: Floats = field(default_factory=_nothing)
    """(layers, heads, keys), if requested: what each key would receive from uniform attention."""
    seen: Floats = field(default_factory=_nothing)
    """(layers, heads, keys), if requested: the share of queries that see each key."""


@dataclass(frozen=True)
class Tokens:
    """Every token of one model under one condition, prompt after prompt."""

    prompts: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Where each prompt's tokens end."""
    base: NDArray[np.int64]
    """The position of the same token in the base prompt, or -1."""
    inserted: NDArray[np.bool_]
    removed: NDArray[np.bool_]
    """Whether the study leaves it out."""

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], self.ends[:-1]])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ends - self.starts

    @property
    def rows(self) -> NDArray[np.int64]:
        """For each token, the index of its prompt."""
        return np.repeat(np.arange(len(self.prompts)), self.lengths)

    @property
    def positions(self) -> NDArray[np.int64]:
        """For each token, its position in its prompt."""
        return np.arange(len(self.base)) - np.repeat(self.starts, self.lengths)


@lru_cache(maxsize=16)
def tokens_of(run: Run, model: str, condition: str) -> Tokens:
    """Every token of one model under one condition, ordered by prompt."""
    cells = run.cells_of(model, condition)
    rows = token_rows(run, model, condition, ["base_position", "segment", "removed"])
    return Tokens(
        cells["prompt"].to_numpy().astype(np.int64),
        np.cumsum(cells["tokens"].to_numpy().astype(np.int64)),
        rows["base_position"].fill_null(-1).to_numpy().astype(np.int64),
        (rows["segment"] == INSERTED).to_numpy(),
        rows["removed"].to_numpy(),
    )


def read_attention(
    run: Run, chosen: HeadChoice, condition: str, prompt: int | None = None
) -> Iterator[PromptAttention]:
    """The attention of each prompt that has the query group, ordered by prompt; or of one prompt."""
    tokens = tokens_of(run, chosen.model, condition)
    having = run.having(chosen.model, condition, chosen.queries)
    places = {int(number): place for place, number in enumerate(tokens.prompts) if int(number) in having}
    wanted = list(places) if prompt is None else [prompt] if prompt in places else []
    keys = dict(run.cells_of(chosen.model, condition).select("prompt", "cell").iter_rows())
    for number in wanted:
        mine = np.s_[tokens.starts[places[number]] : tokens.ends[places[number]]]
        attention, *views = _arrays(run, keys[number], chosen, int(tokens.lengths[places[number]]))
        _refuse_if_wrong(run, attention, f"{chosen.model}, {condition}, prompt {number}")
        if not chosen.every_token and tokens.removed[mine].any():
            attention = shares_of_rest(attention, tokens.removed[mine])
        if chosen.over == "visible":
            attention = _over_visible(attention, views[1])
        more = views if chosen.with_views else []
        yield PromptAttention(condition, number, attention, tokens.base[mine], tokens.inserted[mine], *more)


@lru_cache(maxsize=8)
def head_along(run: Run, chosen: HeadChoice, condition: str) -> Floats:
    """The attention of one head on every token of `tokens_of`, all prompts at once. chosen: one layer, one head."""
    cells = run.cells_of(chosen.model, condition)
    parts = [_nothing()]
    shards = run.cells.shards(cells["cell"].to_list())
    _, lacking = run.lacking(chosen.model, condition, [chosen.queries])
    along = tokens_of(run, chosen.model, condition)
    for number, ((cell, tokens), shard) in enumerate(
        zip(cells.select("cell", "tokens").iter_rows(), shards, strict=True)
    ):
        if lacking[number, 0]:
            parts.append(np.full(tokens, np.nan))
            continue
        (layer,), (head,), group = _places(run, cell, shard, chosen)
        part = shard.lazy_array(cell, RECEIVED)[layer, head][group].astype(np.float64)
        _refuse_if_other_length(run, cell, len(part), tokens)
        _refuse_if_wrong(run, part, f"{chosen.model}, {condition}")
        removed = along.removed[along.starts[number] : along.ends[number]]
        parts.append(shares_of_rest(part, removed) if removed.any() and not chosen.every_token else part)
    flat: Floats = np.concatenate(parts)
    return flat if chosen.over != "visible" else _over_visible(flat, seen_along(run, chosen, condition))


def seen_along(run: Run, chosen: HeadChoice, condition: str) -> Floats:
    """The share of queries that see each token of `tokens_of`. Most layers and heads share it, so it is read once."""
    views, alike = _views_by_layer(run, chosen.model, condition)
    layer = run.layers(chosen.model).index(chosen.layers[0])
    return _seen_by(run, chosen.model, condition, chosen.queries, views[layer], None if alike else chosen.heads[0])


@lru_cache(maxsize=16)
def _views_by_layer(run: Run, model: str, condition: str) -> tuple[list[tuple[int, ...]], bool]:
    """For each layer of the run, its view in each prompt; and whether all heads see the same."""
    cells = run.cells_of(model, condition)["cell"].to_list()
    shards = run.cells.shards(cells)
    views = np.zeros((len(run.layers(model)), len(cells)), dtype=np.int64)
    for place, (cell, shard) in enumerate(zip(cells, shards, strict=True)):
        views[:, place] = shard.lazy_array(cell, VIEW)[:][
            [shard.labels(cell).layers.index(each) for each in run.layers(model)]
        ]
    alike = all(shard.lazy_array(cell, SEEN).get_shape()[1] == 1 for cell, shard in zip(cells, shards, strict=True))
    return [tuple(row) for row in views.tolist()], alike


@lru_cache(maxsize=32)
def _seen_by(run: Run, model: str, condition: str, queries: str, views: tuple[int, ...], head: int | None) -> Floats:
    parts = [_nothing()]
    cells = run.cells_of(model, condition)["cell"].to_list()
    for cell, shard, view in zip(cells, run.cells.shards(cells), views, strict=True):
        seen, labels = shard.lazy_array(cell, SEEN), shard.labels(cell)
        if queries not in labels.queries:
            parts.append(np.full(seen.get_shape()[-1], np.nan))
            continue
        place = 0 if head is None or seen.get_shape()[1] == 1 else labels.heads.index(head)
        parts.append(seen[view, place][labels.queries.index(queries)])
    return np.concatenate(parts).astype(np.float64)


def read_paired_attention(
    run: Run, chosen: HeadChoice, one: str, two: str
) -> Iterator[tuple[PromptAttention, PromptAttention]]:
    """The attention of each prompt that both conditions have, under both."""
    others = run.prompts(chosen.model, two)
    for prompt_attention in read_attention(run, chosen, one):
        if prompt_attention.prompt in others:
            for other in read_attention(run, chosen, two, prompt_attention.prompt):
                yield prompt_attention, other


def by_head(prompts: Sequence[int], chosen: HeadChoice, columns: Mapping[str, Floats]) -> pl.DataFrame:
    """Columns of (prompts, layers, heads) as a table with one row per prompt, layer and head."""
    places = np.meshgrid(np.asarray(prompts, dtype=np.int64), chosen.layers, chosen.heads, indexing="ij")
    named = dict(zip(("prompt", "layer", "head"), (each.ravel().astype(np.int64) for each in places), strict=True))
    return pl.DataFrame({**named, **{name: each.ravel() for name, each in columns.items()}})


def _over_visible(received: Floats, seen: Any) -> Floats:
    mean: Floats = np.divide(received, seen, out=np.full_like(received, np.nan), where=seen > 0)
    return mean


def _places(run: Run, cell: str, shard: Shard, chosen: HeadChoice) -> tuple[list[int], list[int], int]:
    """The indices of the layers, the heads and the query group in a cell's arrays."""
    labels = shard.labels(cell)
    try:
        layers = [labels.layers.index(each) for each in chosen.layers]
        heads = [labels.heads.index(each) for each in chosen.heads]
        return layers, heads, labels.queries.index(chosen.queries)
    except ValueError as error:
        raise _wrong(run, cell, f"it lacks a layer, head or query group: {error}") from error


def _arrays(run: Run, cell: str, chosen: HeadChoice, tokens: int) -> list[Floats]:
    """received, uniform, seen: (layers, heads, keys) of one prompt."""
    layers, heads, group = _places(run, cell, run.cells.shard(cell), chosen)
    view = run.cells.lazy_array(cell, VIEW)[:]
    received = run.cells.lazy_array(cell, RECEIVED)[:]
    _refuse_if_other_length(run, cell, received.shape[-1], tokens)
    arrays = [received[np.ix_(layers, heads)][:, :, group].astype(np.float64)]
    for name in (f"{RECEIVED}{UNIFORM}", SEEN) if chosen.with_views or chosen.over == "visible" else ():
        by_layer = run.cells.lazy_array(cell, name)[:][view[layers]]  # (layers, heads or 1, groups, keys)
        by_head = by_layer[:, heads] if by_layer.shape[1] > 1 else np.repeat(by_layer, len(heads), 1)
        arrays.append(by_head[:, :, group].astype(np.float64))
    return arrays


def _refuse_if_other_length(run: Run, cell: str, keys: int, tokens: int) -> None:
    if keys != tokens:
        raise _wrong(run, cell, f"it has numbers for {keys} keys, but the prompt has {tokens} tokens")


def _refuse_if_wrong(run: Run, attention: Floats, where: str) -> None:
    if not np.isfinite(attention).all() or (attention < 0).any() or (attention > SHARE[1]).any():
        raise AttnscopeError(
            "some of the stored attention is not between 0 and 1",
            where=f"{run.path / SHARDS}: {where}",
            allowed="shards as 'attnscope run' wrote them",
            todo="remove the run and measure it again",
        )


def _wrong(run: Run, cell: str, problem: str) -> AttnscopeError:
    return AttnscopeError(
        f"a shard does not fit the run: {problem}",
        where=f"{run.cells.shard(cell).path}, cell {cell[:12]}",
        allowed="shards as 'attnscope run' wrote them",
        todo="repeat the same 'attnscope run'; it measures what is missing",
    )
