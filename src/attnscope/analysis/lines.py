"""Attention along the prompt: what each token receives from one head, averaged over prompts at matching positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.gazes import Gaze, Heads, gazes, paired
from attnscope.analysis.run import Run
from attnscope.analysis.spread import Running
from attnscope.study.alignment import Places, carry_over
from attnscope.study.segments import Span, Text

REACHED = 0.5  # of the prompts must be so long for a position to be shown


@dataclass(frozen=True)
class Line:
    """One head of a model under one condition."""

    series: str
    heads: Heads
    condition: str


@dataclass(frozen=True)
class Profile:
    """Means over prompts of some heads along the prompt: (layers, heads, positions)."""

    mean: NDArray[np.float64]
    half: NDArray[np.float64]
    """Half the interval of the mean."""
    n: NDArray[np.int64]
    """(positions,): how many prompts have the position."""
    inserted: NDArray[np.bool_]
    """(positions,): whether most of them have an inserted token there."""

    @property
    def shown(self) -> NDArray[np.int64]:
        """Positions that enough prompts have."""
        return np.flatnonzero((self.n > 0) & (self.n >= REACHED * self.n.max(initial=0)))


def along_prompt(run: Run, lines: Sequence[Line], *, shared: bool) -> pl.DataFrame:
    """series, position, attention, low, high, n, inserted. shared: only tokens that all lines have, by the place of
    the first line's in its base prompt; else the whole sequence.
    """
    axis = _Axis(run, lines) if shared else None
    parts = []
    for line in lines:
        profile = profile_of(run, line, axis)
        places = profile.shown
        mean, half = profile.mean[0, 0, places], profile.half[0, 0, places]
        part = pl.DataFrame(
            {
                "position": places,
                "attention": mean,
                "low": mean - half,
                "high": mean + half,
                "n": profile.n[places],
                "inserted": profile.inserted[places],
            }
        )
        parts.append(
            part.select(
                pl.lit(line.series).alias("series"),
                "position",
                pl.col("attention", "low", "high").fill_nan(None),
                "n",
                "inserted",
            )
        )
    return pl.concat(parts)


def profile_of(run: Run, line: Line, axis: _Axis | None = None) -> Profile:
    """A line's heads, averaged over prompts; on the axis, or on the prompt's own positions."""
    running, inserted = Running(), Running()
    for gaze in gazes(run, line.heads, line.condition):
        placed = gaze.attention if axis is None else axis.placed(line, gaze)
        if placed is not None:
            running.add(placed)
            inserted.add(gaze.inserted.astype(np.float64) if axis is None else np.zeros(placed.shape[-1]))
    n = running.n.max((0, 1)) if running.n.ndim > 1 else np.zeros(0)
    return Profile(running.mean, running.half, n.astype(np.int64), inserted.mean > 0.5)


class _Axis:
    """The tokens that several lines share, prompt by prompt: places in the base prompt of the first line's model."""

    def __init__(self, run: Run, lines: Sequence[Line]) -> None:
        self.first = lines[0]
        self._cells = {(line.heads.model, line.condition): _cells(run, line) for line in lines}
        self._places: dict[tuple[str, str, int], Any] = {}
        self._common: dict[int, NDArray[np.int64]] = {}
        first = self._cells[self.first.heads.model, self.first.condition]
        for prompt, cell in first.items():
            common = set(cell.base[cell.base >= 0].tolist())
            for (model, condition), cells in self._cells.items():
                common &= self._held(model, condition, prompt, cell, cells.get(prompt))
            if common:
                self._common[prompt] = np.array(sorted(common))

    def placed(self, line: Line, gaze: Gaze) -> NDArray[np.float64] | None:
        """A gaze's numbers at the shared places, NaN elsewhere; None if the prompt shares none."""
        common = self._common.get(gaze.prompt)
        if common is None:
            return None
        model, cells = line.heads.model, self._cells[line.heads.model, line.condition]
        values, base = gaze.attention, cells[gaze.prompt].base
        if model != self.first.heads.model:
            matrix = self._places[model, line.condition, gaze.prompt]
            unseen = np.isnan(values)
            lost = (unseen.reshape(-1, unseen.shape[-1]).astype(float) @ matrix).reshape(*values.shape[:2], -1) > 0
            values = (np.nan_to_num(values).reshape(-1, values.shape[-1]) @ matrix).reshape(*values.shape[:2], -1)
            values[lost] = np.nan
            base = self._cells[self.first.heads.model, self.first.condition][gaze.prompt].base
        placed = np.full((*values.shape[:2], common[-1] + 1), np.nan)
        mine = np.isin(base, common)
        placed[..., base[mine]] = values[..., mine]
        return placed

    def _held(self, model: str, condition: str, prompt: int, first: _Cell, cell: _Cell | None) -> set[int]:
        """The first line's base places that a cell has too."""
        if cell is None:
            return set()
        if model == self.first.heads.model:
            return set(cell.base.tolist())
        matrix, covered = carry_over(cell.places, cell.text, first.places, first.text)
        self._places[model, condition, prompt] = matrix
        return set(first.base[covered].tolist())


def ranked(run: Run, chosen: Heads, conditions: Sequence[str]) -> dict[tuple[int, int], int]:
    """Every head's rank, from 1, by the mean distance between two conditions over the tokens they share."""
    distances = Running()
    for one, two in paired(run, chosen, *conditions):
        shared, mine, others = np.intersect1d(one.base, two.base, return_indices=True)
        known = shared >= 0
        with np.errstate(invalid="ignore"):
            apart = np.abs(one.attention[..., mine[known]] - two.attention[..., others[known]])
        there = ~np.isnan(apart)
        if there.any():
            total = np.where(there, apart, 0).sum(-1) / np.maximum(1, there.sum(-1))
            distances.add(np.where(there.any(-1), total, np.nan)[..., None])
    if not distances.n.size:
        return {}
    order = np.argsort(-distances.mean[..., 0], axis=None, kind="stable")
    layers, heads = np.unravel_index(order, distances.mean.shape[:2])
    return {
        (chosen.layers[layer], chosen.heads[head]): place
        for place, (layer, head) in enumerate(zip(layers.tolist(), heads.tolist(), strict=True), 1)
    }


@dataclass(frozen=True)
class _Cell:
    """The tokens of one prompt as one model got it under one condition."""

    text: Text
    places: Places
    base: NDArray[np.int64]


def _cells(run: Run, line: Line) -> Mapping[int, _Cell]:
    here = (pl.col("model") == line.heads.model) & (pl.col("condition") == line.condition)
    texts = run.table("prompts").filter(here).select("prompt", "text", "spans").collect()
    tokens = (
        run.table("tokens")
        .filter(here)
        .select("prompt", "start", "end", pl.col("base_position").fill_null(-1))
        .collect()
        .partition_by("prompt", as_dict=True)
    )
    return {row["prompt"]: _cell(row, tokens[row["prompt"],]) for row in texts.iter_rows(named=True)}


def _cell(row: Mapping[str, Any], tokens: pl.DataFrame) -> _Cell:
    places = tokens.select("start", "end").to_numpy().astype(np.int64)
    text = Text(row["text"], tuple(Span(**span) for span in row["spans"]))
    return _Cell(text, places, tokens["base_position"].to_numpy().astype(np.int64))
