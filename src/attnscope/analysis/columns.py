"""Where a line's tokens stand on the horizontal axis: by position, from the start or end of a segment, or within it.

Lines are means over prompts, column by column. Prompts that differ in length have the same thing in the same column
only if they are aligned by it: in column 0 stands each prompt's own first token of the segment, or its last. Within a
segment, columns are bins from its start to its end, whatever its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.dense import token_rows
from attnscope.analysis.run import Run
from attnscope.text.segments import Selector, Span

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]

START, END, WITHIN = "start", "end", "within"


@dataclass(frozen=True)
class Align:
    """What lines are aligned by: an end of a segment (a selector), or the relative position within it, in bins."""

    by: Literal["start", "end", "within"]
    segment: str
    bins: int = 1

    @property
    def written(self) -> str:
        """As in a study file: `start:question`."""
        return f"{self.by}:{self.segment}"


class Columns(Protocol):
    """The columns of a line, for prompts whose tokens stand at places (prompts, places)."""

    rows: Flags
    """(prompts,): those that have the segment; the others are left out."""
    positions: Numbers
    """(columns,): tokens from the start of the prompt or from the anchor; or the number of the bin."""

    def means(self, values: Floats) -> Floats:
        """Values (prompts, places), NaN where there is none -> (rows, columns)."""

    def some(self, flags: Flags) -> Flags:
        """Flags (prompts, places) -> (rows, columns): whether any token of the column has one."""


class ByPosition:
    """Every place is a column."""

    def __init__(self, prompts: int, places: int) -> None:
        self.rows = np.ones(prompts, dtype=bool)
        self.positions = np.arange(places)

    def means(self, values: Floats) -> Floats:
        return values

    def some(self, flags: Flags) -> Flags:
        return flags


class FromAnchor:
    """A column for each distance from a prompt's anchor; the columns before it are negative.

    anchors (prompts,): a place, or -1 for a prompt without one.
    """

    def __init__(self, anchors: Numbers, places: int) -> None:
        self.rows = anchors >= 0
        self._anchors = anchors[self.rows]
        before, after = int(self._anchors.max(initial=0)), places - int(self._anchors.min(initial=places))
        self.positions = np.arange(-before, after)

    def means(self, values: Floats) -> Floats:
        return self._shifted(values, np.nan)

    def some(self, flags: Flags) -> Flags:
        return self._shifted(flags, False)

    def _shifted(self, of_places: NDArray[Any], nothing: Any) -> NDArray[Any]:
        places = of_places.shape[1]
        shifted = np.full((len(self._anchors), len(self.positions)), nothing, dtype=of_places.dtype)
        for row, (anchor, mine) in enumerate(zip(self._anchors, of_places[self.rows], strict=True)):
            first = -int(anchor) - int(self.positions[0])
            shifted[row, first : first + places] = mine
        return shifted


class InBins:
    """Bins of equal width from a segment's start to its end; a token is in each by the part of it that lies there.

    So a prompt with fewer tokens than bins has a value in each of them, and every prompt counts once per bin.
    inside (prompts, places): the segment's tokens.
    """

    def __init__(self, inside: Flags, bins: int) -> None:
        self.rows: Flags = np.asarray(inside.any(1))
        self.positions = np.arange(bins)
        self._inside = inside[self.rows]

    def means(self, values: Floats) -> Floats:
        """A bin's mean per token, over its tokens that have a value."""
        binned = np.full((len(self._inside), len(self.positions)), np.nan)
        for row, (inside, all_values) in enumerate(zip(self._inside, values[self.rows], strict=True)):
            tokens = all_values[inside]
            parts = self._parts(len(tokens))[:, ~np.isnan(tokens)]
            total = parts.sum(1)
            sums = parts @ tokens[~np.isnan(tokens)]
            np.divide(sums, total, out=binned[row], where=total > 0)
        return binned

    def some(self, flags: Flags) -> Flags:
        rows = zip(self._inside, flags[self.rows], strict=True)
        having = [(self._parts(int(inside.sum())) > 0) @ every[inside] for inside, every in rows]
        return np.array(having, dtype=bool).reshape(-1, len(self.positions))

    def _parts(self, tokens: int) -> Floats:
        """(bins, tokens): how much of each token lies in each bin."""
        bins = len(self.positions)
        edges = np.arange(bins + 1)[:, None] * tokens  # in whole numbers, so that no rounding puts a token elsewhere
        ends = np.arange(tokens + 1)[None] * bins
        low, high = np.maximum(edges[:-1], ends[:, :-1]), np.minimum(edges[1:], ends[:, 1:])
        parts: Floats = np.maximum(0, high - low) / bins
        return parts


@lru_cache(maxsize=16)
def segment_tokens(run: Run, model: str, condition: str, selector: str) -> Flags:
    """(tokens,): which of the tokens of `tokens_of` belong to a segment."""
    wanted = Selector.of(selector)
    rows = token_rows(run, model, condition, ["prompt", "segment"])
    chosen = [
        {"prompt": prompt, "segment": name}
        for prompt, spans in run.rows("prompts", model, condition, ["prompt", "spans"]).iter_rows()
        for name in wanted.segments([Span(**span) for span in spans])
    ]
    schema: dict[str, Any] = {"prompt": rows.schema["prompt"], "segment": pl.String}
    named = pl.DataFrame(chosen, schema=schema).with_columns(inside=pl.lit(True))
    strings = rows.with_columns(pl.col("segment").cast(pl.String))
    flags = strings.join(named, on=["prompt", "segment"], how="left", maintain_order="left")["inside"]
    return flags.fill_null(value=False).to_numpy()


def ends_of(inside: Flags, rows: Numbers, places: Numbers, prompts: int) -> tuple[Numbers, Numbers]:
    """(prompts,) each: the places of a segment's first and last token; -1 for a prompt without it, or without a place.

    inside, rows, places (tokens,): whether a token belongs to the segment, its prompt, and where it stands.
    """
    first, last = np.full(prompts, -1), np.full(prompts, -1)
    mine = np.flatnonzero(inside & (rows >= 0))
    last[rows[mine]] = places[mine]  # of several, numpy keeps the last one
    first[rows[mine[::-1]]] = places[mine[::-1]]
    return first, last


def columns_of(align: Align | None, inside: Flags, first: Numbers, last: Numbers) -> Columns:
    """The columns of prompts whose tokens stand at places.

    inside (prompts, places): the tokens of the segment. first, last (prompts,): where its ends stand, -1 for a prompt
    that has no such place.
    """
    if align is None:
        return ByPosition(*inside.shape)
    if align.by == WITHIN:
        return InBins(inside, align.bins)
    return FromAnchor(first if align.by == START else last, inside.shape[1])
