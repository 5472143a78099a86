"""ASCII puzzles: a shape drawn in `#`, where it ends up in `*`, and one elementary move between the two.

Two grids of the same size, start and goal, with numbered rows. The move is one of: translate the shape by some
cells in one direction, rotate the grid by a quarter or a half, scale the shape up or down by two from its top left
corner. A puzzle is used only if no other move gives the same goal, so each has one right answer; all puzzles of a set
are different. A worked answer first gives the rows and columns that the shape spans at the start and at the goal.

Each puzzle belongs to one of two parts, decided by a hash of its grids: one in eight is held out. So a model trained on
one part can be tested on the other, whatever the seeds, counts and sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.errors import AttnscopeError, near
from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet

Grid = NDArray[np.bool_]

KINDS = ("translate", "rotate", "scale")
PARTS = ("all", "train", "held-out")
OPTIONS = {
    "moves": list(KINDS),
    "least": 5,
    "most": 7,
    "cells": 6,
    "doubled": 0.0,  # of shapes that are not scaled, the share made of two-by-two blocks
    "part": "all",
    "gap": " ",
    "empty": ".",
    "numbered": True,
}
_TYPES = {list: "a list", int: "a whole number", float: "a share, such as 0.5", bool: "true or false", str: "text"}
PATIENCE = 2000  # tries without a new puzzle before giving up
_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_TURNS = {"rotate right": 3, "rotate left": 1, "rotate half": 2}

INSTRUCTION = "A shape is drawn with #. One move takes it to its goal, drawn with *."
QUESTION = "Which move is it?"


def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`count` different puzzles; the same seed gives the same ones, and a longer list starts with the shorter one."""
    chosen = {**OPTIONS, **options}
    _refuse_wrong(options, chosen)
    chance = Random(seed)  # noqa: S311
    puzzles: dict[str, dict[str, Any]] = {}
    tries = 0
    while tries < PATIENCE:
        if len(puzzles) == count:
            return list(puzzles.values())
        before = len(puzzles)
        kind = chosen["moves"][len(puzzles) % len(chosen["moves"])]
        puzzle = _puzzle(kind, chance, chosen)
        if puzzle is not None:
            puzzles.setdefault(puzzle["drawing"], puzzle)
        tries = 0 if len(puzzles) > before else tries + 1
    raise _wrong(
        f"there are not {count} different puzzles of this size", f"at most about {len(puzzles)}, or larger grids"
    )


def _refuse_wrong(options: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    for key in options:
        if key not in OPTIONS:
            raise _wrong(f"blocks has no option '{key}'", near(str(key), OPTIONS))
        kind = type(OPTIONS[key])
        if type(chosen[key]) is not kind:
            raise _wrong(f"{key} of blocks can't be {chosen[key]!r}", _TYPES[kind])
    if chosen["part"] not in PARTS:
        raise _wrong(f"blocks has no part {chosen['part']!r}", near(str(chosen["part"]), PARTS))
    for kind in chosen["moves"]:
        if kind not in KINDS:
            raise _wrong(f"blocks has no move '{kind}'", near(str(kind), KINDS))
    if not 3 <= chosen["least"] <= chosen["most"] <= 40 or not 2 <= chosen["cells"] <= 40 or not chosen["moves"]:
        raise _wrong(
            "blocks can't make grids like this", "3 <= least <= most <= 40, 2 <= cells <= 40, at least one move"
        )


def is_held_out(start: Grid, goal: Grid) -> bool:
    """Whether a puzzle is in the eighth that is held out from training."""
    return sha256(bytes([len(start)]) + np.packbits([start, goal]).tobytes()).digest()[0] < 32


def moves(grid: Grid) -> Iterator[tuple[str, str, Grid]]:
    """Every move that keeps the shape whole and inside the grid: (kind, move in words, goal)."""
    rows, columns = np.nonzero(grid)
    height, width = grid.shape
    for word, (down, right) in _STEPS.items():
        reach = {"up": rows.min(), "down": height - 1 - rows.max(), "left": columns.min()}.get(
            word, width - 1 - columns.max()
        )
        for step in range(1, int(reach) + 1):
            yield "translate", f"translate {word} {step}", np.roll(grid, (down * step, right * step), (0, 1))
    if height == width:
        for word, turns in _TURNS.items():
            yield "rotate", word, np.rot90(grid, turns)
    top, left = int(rows.min()), int(columns.min())
    shape = grid[top : rows.max() + 1, left : columns.max() + 1]
    large = shape.repeat(2, 0).repeat(2, 1)
    if top + large.shape[0] <= height and left + large.shape[1] <= width:
        yield "scale", "scale up", _placed(large, grid.shape, top, left)
    if shape.shape[0] % 2 == 0 and shape.shape[1] % 2 == 0:
        small = shape[::2, ::2]
        if (small.repeat(2, 0).repeat(2, 1) == shape).all():
            yield "scale", "scale down", _placed(small, grid.shape, top, left)


def _puzzle(kind: str, chance: Random, chosen: Mapping[str, Any]) -> dict[str, Any] | None:
    size = chance.randint(chosen["least"], chosen["most"])
    share = 0.5 if kind == "scale" else chosen["doubled"]
    grid = _shape(size, chosen["cells"], chance, doubled=share > 0 and chance.random() < share)
    if grid is None:
        return None
    every = list(moves(grid))
    wanted = [(words, goal) for name, words, goal in every if name == kind]
    if not wanted:
        return None
    words, goal = chance.choice(wanted)
    if (goal == grid).all() or sum((other == goal).all() for _, _, other in every) > 1:
        return None
    if chosen["part"] != "all" and is_held_out(grid, goal) != (chosen["part"] == "held-out"):
        return None
    start, end = (_drawn(each, symbol, chosen) for each, symbol in ((grid, "#"), (goal, "*")))
    drawing = f"Start:\n{start}\n\nGoal:\n{end}"
    return {
        "instruction": INSTRUCTION,
        "drawing": drawing,
        "question": QUESTION,
        "answer": words,
        "worked": worked(grid, goal, words),
        "move": kind,
    }


def worked(start: Grid, goal: Grid, words: str) -> str:
    """An answer with its derivation: 0-1,2-3 > 1-2,2-3: translate down 1."""
    return f"{_extent(start)} > {_extent(goal)}: {words}"


def _extent(grid: Grid) -> str:
    """The rows and columns a shape spans, from 0: 1-2,0-3."""
    return ",".join(f"{places.min()}-{places.max()}" for places in np.nonzero(grid))


def _shape(size: int, most_cells: int, chance: Random, *, doubled: bool) -> Grid | None:
    """A connected shape of a few cells somewhere in the grid; doubled: made of two-by-two blocks."""
    most = size // 2 if doubled else size - 1
    count = chance.randint(2, most_cells)
    cells = {(0, 0)}
    while len(cells) < count:
        row, column = chance.choice(sorted(cells))
        down, right = chance.choice(list(_STEPS.values()))
        cells.add((row + down, column + right))
    top, left = min(row for row, _ in cells), min(column for _, column in cells)
    shape = np.zeros(
        (1 + max(row for row, _ in cells) - top, 1 + max(column for _, column in cells) - left), dtype=bool
    )
    for row, column in cells:
        shape[row - top, column - left] = True
    if max(shape.shape) > most:
        return None
    if doubled:
        shape = shape.repeat(2, 0).repeat(2, 1)
    room = (size - shape.shape[0], size - shape.shape[1])
    return _placed(shape, (size, size), chance.randint(0, room[0]), chance.randint(0, room[1]))


def _placed(shape: Grid, size: tuple[int, ...], top: int, left: int) -> Grid:
    grid = np.zeros(size, dtype=bool)
    grid[top : top + shape.shape[0], left : left + shape.shape[1]] = shape
    return grid


def _drawn(grid: Grid, symbol: str, chosen: Mapping[str, Any]) -> str:
    gap = str(chosen["gap"])
    lines = (gap.join(symbol if cell else str(chosen["empty"]) for cell in row) for row in grid)
    wide = len(str(len(grid) - 1))
    return "\n".join(f"{row:>{wide}}{gap}{line}" if chosen["numbered"] else line for row, line in enumerate(lines))


def _wrong(what: str, allowed: str) -> AttnscopeError:
    return AttnscopeError(what, where="prompts.options", allowed=allowed, todo="fix the study file")


SET = PromptSet(
    name="blocks",
    about="ASCII puzzles: a shape in #, its goal in *, one move between them",
    layouts=Layouts(
        chat=Layout((("system", "Name the move."), ("user", "{drawing}"))),
        plain=Layout(((None, "Name the move.\n\n{drawing}"),)),
    ),
    make=make,
)
