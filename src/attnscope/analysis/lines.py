"""Attention along the prompt: what each token receives from one head, averaged over prompts at matching positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.effects import effects
from attnscope.analysis.gazes import Gaze, Heads, gazes
from attnscope.analysis.run import Run
from attnscope.analysis.spread import Running, mean_of_seen
from attnscope.errors import AttnscopeError
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
    inserted: NDArray[np.float64]
    """(positions,): the share of them that have an inserted token there."""
    within: NDArray[np.float64]
    """(layers, heads): what an inserted token receives, mean within prompts, then over them; NaN if none is."""
    without: NDArray[np.float64]
    """(layers, heads): what another token receives, likewise."""

    @property
    def shown(self) -> NDArray[np.int64]:
        """Positions that enough prompts have."""
        return np.flatnonzero((self.n > 0) & (self.n >= REACHED * self.n.max(initial=0)))


def along_prompt(run: Run, lines: Sequence[Line], *, shared: bool) -> pl.DataFrame:
    """series, position, n, attention, low, high, inserted, within, without, against, difference, its ends and q.

    shared: only tokens that all lines have, by the first line's place in its base prompt; else the whole sequence.
    """
    if shared:
        profiles, apart = _shared_profiles(run, lines)
    else:
        profiles, apart = [profile_of(run, line) for line in lines], []
    floats = pl.col("attention", "low", "high", "inserted", "within", "without", *_DIFFERENCE)
    parts = []
    for number, (line, profile) in enumerate(zip(lines, profiles, strict=True)):
        places = profile.shown
        against = _against(apart[number - 1][:, places], run.study.seed) if number and apart else {}
        mean, half = profile.mean[0, 0, places], profile.half[0, 0, places]
        part = pl.DataFrame(
            {
                "position": places,
                "attention": mean,
                "low": mean - half,
                "high": mean + half,
                "n": profile.n[places],
                "inserted": profile.inserted[places],
                **(against or {name: np.full(len(places), np.nan) for name in _DIFFERENCE}),
            }
        ).with_columns(within=pl.lit(profile.within[0, 0]), without=pl.lit(profile.without[0, 0]))
        first = pl.lit(lines[0].series if against else None, dtype=pl.String).alias("against")
        parts.append(part.select(pl.lit(line.series).alias("series"), "position", "n", first, floats.fill_nan(None)))
    made = pl.concat(parts)
    if not len(made):
        raise AttnscopeError(
            "no prompt has tokens that all lines share",
            where=", ".join(line.series for line in lines),
            allowed="lines that have prompts in common",
            todo="choose other conditions or models",
        )
    return made


_DIFFERENCE = ("difference", "difference_low", "difference_high", "q")


def _against(apart: NDArray[np.float64], seed: int) -> dict[str, NDArray[np.float64]]:
    """Of a line less the first one within prompts, (prompts, positions)."""
    found = effects(apart, seed)
    return dict(zip(_DIFFERENCE, (found.mean, found.low, found.high, found.q), strict=True))


def profile_of(run: Run, line: Line) -> Profile:
    """A line's heads on the prompt's own positions, averaged over prompts."""
    running, inserted, within, without = (Running() for _ in range(4))
    for gaze in gazes(run, line.heads, line.condition):
        running.add(gaze.attention)
        inserted.add(gaze.inserted.astype(np.float64))
        if gaze.inserted.any():
            within.add(mean_of_seen(gaze.attention[..., gaze.inserted], -1)[..., None])
            without.add(mean_of_seen(gaze.attention[..., ~gaze.inserted], -1)[..., None])
    return _profile(running, inserted.mean, within, without)


def _shared_profiles(run: Run, lines: Sequence[Line]) -> tuple[list[Profile], list[NDArray[np.float64]]]:
    """The lines, and for each but the first its differences to that one by prompt, (prompts, positions).

    Within a prompt, a token counts for all lines or for none: one that some line's queries can't see for none.
    """
    axis = _Axis(run, lines)
    running = [Running() for _ in lines]
    apart: list[list[NDArray[np.float64]]] = [[] for _ in lines[1:]]
    for together in _together(run, lines):
        placed = [axis.placed(line, gaze) for line, gaze in zip(lines, together, strict=True)]
        known = [each for each in placed if each is not None]
        if len(known) < len(lines):
            continue
        unseen = np.any([np.isnan(each).any((0, 1)) for each in known], axis=0)
        for each, values in zip(running, known, strict=True):
            each.add(np.where(unseen, np.nan, values))
        for rows, values in zip(apart, known[1:], strict=True):
            rows.append(np.where(unseen, np.nan, values - known[0])[0, 0])
    profiles = [_profile(each, np.zeros(each.n.shape[-1])) for each in running]
    return profiles, [_stacked(rows) for rows in apart]


def _stacked(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Rows of different lengths as one array, NaN beyond their ends."""
    made = np.full((len(rows), max((len(row) for row in rows), default=0)), np.nan)
    for place, row in enumerate(rows):
        made[place, : len(row)] = row
    return made


def _together(run: Run, lines: Sequence[Line]) -> Iterator[list[Gaze]]:
    """The gazes of all lines, prompt by prompt, for the prompts that all of them have."""
    sources = [gazes(run, line.heads, line.condition) for line in lines]
    now = [next(source, None) for source in sources]
    while all(gaze is not None for gaze in now):
        held = [gaze for gaze in now if gaze is not None]
        last = max(gaze.prompt for gaze in held)
        if all(gaze.prompt == last for gaze in held):
            yield held
            now = [next(source, None) for source in sources]
        else:
            now = [
                next(source, None) if gaze.prompt < last else gaze for source, gaze in zip(sources, held, strict=True)
            ]


def _profile(
    running: Running, inserted: NDArray[np.float64], within: Running | None = None, without: Running | None = None
) -> Profile:
    if running.n.ndim < 3:  # no prompt at all
        empty, unknown = np.zeros((1, 1, 0)), np.full((1, 1), np.nan)
        return Profile(empty, empty, np.zeros(0, dtype=np.int64), np.zeros(0), unknown, unknown)
    unknown = np.full(running.n.shape[:2], np.nan)
    means = [unknown if each is None or each.n.ndim < 3 else each.mean[..., 0] for each in (within, without)]
    return Profile(running.mean, running.half, running.n.max((0, 1)).astype(np.int64), inserted, *means)


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
