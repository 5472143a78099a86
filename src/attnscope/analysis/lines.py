"""Attention along the prompt: what each token receives from one head, averaged over prompts column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from attnscope.analysis.bootstrap import Sample
from attnscope.analysis.columns import Align, Columns, columns_of, ends_of, segment_tokens
from attnscope.analysis.dense import token_rows
from attnscope.analysis.discoveries import discoveries
from attnscope.analysis.effects import effects
from attnscope.analysis.one_way import more_queries
from attnscope.analysis.profiles import shown
from attnscope.analysis.received import HeadChoice, head_along, seen_along, tokens_of
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.analysis.spread import cut_to_differences, mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.text.alignment import carry_over
from attnscope.text.segments import Span, Text

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Place = tuple[str, str]
"""A model's label and a condition's name."""


@dataclass(frozen=True)
class Line:
    """One head of a model under one condition."""

    series: str
    heads: HeadChoice
    condition: str

    @property
    def place(self) -> Place:
        return self.heads.model, self.condition


def along_prompt(run: Run, lines: Sequence[Line], *, shared: bool, align: Align | None = None) -> pl.DataFrame:
    """series, position, n, lacking, attention, low, high, inserted, within, without, against, difference, ends and q.

    shared: only tokens that all lines have, by position in the first line's base prompt; otherwise the whole prompt.
    align: by which segment; prompts that lack it are left out (lacking). Shared lines go by the first line's segment.
    """
    values = [head_along(run, line.heads, line.condition) for line in lines]
    if shared:
        axis = shared_tokens(run, tuple(line.place for line in lines))
        columns = axis.columns(run, align)
        placed = [columns.means(each) for each in axis.placed(values)]
        clusters = run.clusters(axis.prompts[columns.rows])
        means = [_MeanLine(each, columns, clusters) for each in placed]
    else:
        placed, clusters = [], np.zeros(0, dtype=np.int64)
        means = [_whole(run, line.place, each, align) for line, each in zip(lines, values, strict=True)]
    floats = pl.col("attention", "low", "high", "inserted", "within", "without", *_DIFFERENCE)
    parts = []
    for number, (line, each) in enumerate(zip(lines, means, strict=True)):
        places = shown(each.n)
        other = _compared_with(lines, number)
        apart = (placed[number] - placed[other])[:, places] if number and shared else np.zeros((0, len(places)))
        against = _against(apart, clusters, run.study.seed) if len(apart) else {}
        if against and more_queries(Side(run, *lines[other].place), Side(run, *line.place), line.heads.queries):
            tested = ~_by_edits(run, lines[other], line, axis, columns)[places]
            against["q"] = discoveries(np.where(tested, against["p"], np.nan))
        mean, half = each.mean[places], each.half[places]
        part = pl.DataFrame(
            {
                "position": each.positions[places],
                "attention": mean,
                "low": mean - half,
                "high": mean + half,
                "n": each.n[places],
                "inserted": each.inserted[places],
                **(against or {name: np.full(len(places), np.nan) for name in _DIFFERENCE}),
            }
        ).with_columns(within=pl.lit(each.within), without=pl.lit(each.without), lacking=pl.lit(each.lacking))
        reference = pl.lit(lines[other].series if against else None, dtype=pl.String).alias("against")
        series = pl.lit(line.series).alias("series")
        parts.append(part.select(series, "position", "n", "lacking", reference, floats.fill_nan(None)).drop("p"))
    table = pl.concat(parts)
    if not len(table):
        if align is not None and not any(each.prompts for each in means):
            raise _without_segment(align, lines[0], shared=shared)
        raise AttnscopeError(
            "the lines have no tokens in common in any prompt",
            where=", ".join(line.series for line in lines),
            allowed="lines that have prompts in common",
            todo="choose other conditions or models",
        )
    return table


def _without_segment(align: Align, first: Line, *, shared: bool) -> AttnscopeError:
    where = f"{first.heads.model}, {first.condition}" if shared else first.heads.model
    return AttnscopeError(
        f"no prompt has a token of '{align.segment}' to align lines by",
        where=where,
        allowed="a segment that prompts have; of shared lines, one that the first line shares with the others",
        todo="name another segment, put a condition that has it first, or leave align out",
    )


def _compared_with(lines: Sequence[Line], number: int) -> int:
    """The line to compare one with, so that they differ in one thing only: the first of its head, or the first."""
    mine = next(place for place, line in enumerate(lines) if line.heads == lines[number].heads)
    return mine if mine != number else 0


def _by_edits(run: Run, one: Line, two: Line, axis: SharedTokens, columns: Columns) -> NDArray[np.bool_]:
    """(columns,): where two lines differ through the edits alone, as inserted tokens are among the queries.

    In a mean over all queries that is everywhere; in one over those that see a token, where more of them do.
    """
    if two.heads.over == "all":
        return np.ones(len(columns.positions), dtype=bool)
    seen = []
    for line in (one, two):
        tokens = tokens_of(run, *line.place)
        seen.append(seen_along(run, line.heads, line.condition) * np.repeat(tokens.lengths, tokens.lengths))
    first, second = axis.placed_at([one.place, two.place], seen)
    with np.errstate(invalid="ignore"):
        return np.asarray(columns.some(np.abs(second - first) > 0.5).any(0))


_DIFFERENCE = ("difference", "difference_low", "difference_high", "p", "q")


def _against(apart: Floats, clusters: NDArray[np.int64], seed: int) -> dict[str, Floats]:
    """The statistics of a line minus another one within prompts, (prompts, positions)."""
    result = effects(apart, clusters=clusters, seed=seed)
    ends = cut_to_differences(result.low, result.high)
    return dict(zip(_DIFFERENCE, (result.mean, *ends, result.p, result.q), strict=True))


class _MeanLine:
    """The mean over prompts of (prompts, columns); NaN where a prompt has no value."""

    def __init__(self, values: Floats, columns: Columns, clusters: NDArray[np.int64]) -> None:
        self.positions = columns.positions
        self.prompts, self.lacking = int(columns.rows.sum()), int((~columns.rows).sum())
        self.n = (~np.isnan(values)).sum(0).astype(np.int64)
        sample = Sample.of(values, clusters)
        self.mean, self.half = sample.mean, sample.half_width
        self.inserted = np.zeros(len(self.n))
        self.within = self.without = np.nan
        """What an inserted token receives, and another one: mean within prompts, then over those with an insertion."""

    def insertion(self, values: Floats, inserted: Floats, columns: Columns) -> None:
        """Note where tokens are inserted, and what they receive. values, inserted: (prompts, places)."""
        self.inserted = np.nan_to_num(mean_of_seen(columns.means(inserted), 0))
        some = columns.rows & (inserted == 1).any(1)
        if some.any():
            parts = (np.where(inserted[some] == each, values[some], np.nan) for each in (1, 0))
            self.within, self.without = (float(mean_of_seen(mean_of_seen(part, 1), 0)) for part in parts)


def _whole(run: Run, place: Place, values: Floats, align: Align | None) -> _MeanLine:
    """A line over the positions of the prompts themselves."""
    tokens = tokens_of(run, *place)
    shape = (len(tokens.prompts), int(tokens.lengths.max(initial=0)))
    placed, inserted = np.full(shape, np.nan), np.full(shape, np.nan)
    at = tokens.rows, tokens.positions
    placed[at], inserted[at] = values, tokens.inserted
    columns = _columns(run, place, align, tokens.rows, tokens.positions, shape)
    line = _MeanLine(columns.means(placed), columns, run.clusters(tokens.prompts[columns.rows]))
    line.insertion(placed, inserted, columns)
    return line


def _columns(
    run: Run, place: Place, align: Align | None, rows: Numbers, places: Numbers, shape: tuple[int, ...]
) -> Columns:
    """The columns of one model's prompts under one condition.

    rows, places (tokens,): where each token stands in an array of this shape (prompts, places); -1 for nowhere.
    """
    flags = np.zeros(shape, dtype=bool)
    if align is None:
        return columns_of(None, flags, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    inside = segment_tokens(run, *place, align.segment)
    known = inside & (rows >= 0) & (places >= 0)
    flags[rows[known], places[known]] = True
    return columns_of(align, flags, *ends_of(inside, rows, places, shape[0]))


@lru_cache(maxsize=8)
def shared_tokens(run: Run, places: tuple[Place, ...]) -> SharedTokens:
    return SharedTokens(run, places)


class SharedTokens:
    """The tokens that several lines share, per prompt, as positions in the base prompt of the first line's model.

    Within a prompt, a token counts for all lines or for none: if one line's queries can't see it, it counts for none.
    """

    def __init__(self, run: Run, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._tokens = {place: tokens_of(run, *place) for place in self._places}
        first = self._tokens[self._places[0]]
        prompts = first.prompts
        for tokens in self._tokens.values():
            prompts = np.intersect1d(prompts, tokens.prompts)
        self.prompts = prompts
        self._carried = {
            place: _carry_over(run, place, self._places[0]) for place in self._tokens if place[0] != self._places[0][0]
        }
        self._at: dict[Place, tuple[Any, Any, Any]] = {}
        width = int(first.base.max(initial=-1)) + 1
        self.common = np.ones((len(prompts), width), dtype=bool)
        """(prompts, places): the tokens that all lines have."""
        for place, tokens in self._tokens.items():
            onto, covered = tokens, np.ones(len(tokens.base), dtype=bool)
            if place in self._carried:
                onto, covered = first, self._carried[place].covered
            row = np.searchsorted(prompts, onto.prompts)
            shared = np.isin(onto.prompts, prompts)[onto.rows] & (onto.base >= 0) & (onto.base < width) & covered
            self._at[place] = shared, row[onto.rows[shared]], onto.base[shared]
            mine = np.zeros(self.common.shape, dtype=bool)
            mine[self._at[place][1:]] = True
            self.common &= mine

    def columns(self, run: Run, align: Align | None) -> Columns:
        """Of the first line's base prompts: where its segment stands there."""
        first = self._tokens[self._places[0]]
        rows = np.where(np.isin(first.prompts, self.prompts), np.searchsorted(self.prompts, first.prompts), -1)
        places = np.where(first.base < self.common.shape[1], first.base, -1)
        return _columns(run, self._places[0], align, rows[first.rows], places, self.common.shape)

    def placed(self, values: Sequence[Floats]) -> list[Floats]:
        """Each line's numbers, given per token, at the shared positions: (prompts, positions), NaN elsewhere."""
        return self.placed_at(self._places, values)

    def placed_at(self, places: Sequence[Place], values: Sequence[Floats]) -> list[Floats]:
        """Likewise, of some of the lines."""
        lines = []
        for place, flat in zip(places, values, strict=True):
            values_onto = self._carried[place].over(flat) if place in self._carried else flat
            shared, row, column = self._at[place]
            placed = np.full(self.common.shape, np.nan)
            placed[row, column] = values_onto[shared]
            lines.append(placed)
        seen = self.common & ~np.any(np.isnan(lines), axis=0)
        return [np.where(seen, each, np.nan) for each in lines]


@dataclass(frozen=True)
class _Carried:
    """Carries values of one model's tokens over to another's, character by character, for all prompts at once."""

    matrix: Any
    covered: NDArray[np.bool_]
    """For each token of the other model, whether all its characters are covered."""

    def over(self, values: Floats) -> Floats:
        carried: Floats = np.nan_to_num(values) @ self.matrix
        lost = np.isnan(values).astype(np.float64) @ self.matrix > 0
        return np.where(lost, np.nan, carried)


def _carry_over(run: Run, place: Place, first: Place) -> _Carried:
    mine, theirs = _cells(run, *place), _cells(run, *first)
    tokens, others = tokens_of(run, *place), tokens_of(run, *first)
    starts = dict(zip(tokens.prompts.tolist(), tokens.starts.tolist(), strict=True))
    covered = np.zeros(len(others.base), dtype=np.bool_)
    shares, rows, columns = [np.zeros(0)], [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for prompt, start, end in zip(others.prompts.tolist(), others.starts, others.ends, strict=True):
        if prompt in mine:
            matrix, covered[start:end] = carry_over(*reversed(mine[prompt]), *reversed(theirs[prompt]))
            sparse_shares = matrix.tocoo()
            shares.append(sparse_shares.data)
            rows.append(sparse_shares.coords[0] + starts[prompt])
            columns.append(sparse_shares.coords[1] + start)
    at = np.concatenate(rows), np.concatenate(columns)
    shape = (len(tokens.base), len(others.base))
    return _Carried(sparse.csr_array((np.concatenate(shares), at), shape=shape), covered)


def _cells(run: Run, model: str, condition: str) -> Mapping[int, tuple[Text, Any]]:
    """By prompt, in order: the text and the character ranges of its tokens."""
    texts = run.rows("prompts", model, condition, ["prompt", "text", "spans"]).sort("prompt")
    rows = token_rows(run, model, condition, ["prompt", "start", "end"])
    tokens = rows.partition_by("prompt", as_dict=True, maintain_order=True)
    return {
        row["prompt"]: (
            Text(row["text"], tuple(Span(**span) for span in row["spans"])),
            tokens[row["prompt"],].select("start", "end").to_numpy().astype(np.int64),
        )
        for row in texts.iter_rows(named=True)
    }
