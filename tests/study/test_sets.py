"""Bundled sets: puzzles with one right answer, the same for the same seed; problems enough and of many kinds."""

from __future__ import annotations

import numpy as np
import pytest

from attnscope.errors import AttnscopeError
from attnscope.study.sets import prompt_sets
from attnscope.study.sets.blocks import make, moves

SETS = prompt_sets()


def grids(drawing: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    start, goal = drawing.removeprefix("Start:\n").split("\n\nGoal:\n")
    return [np.array([[cell != "." for cell in line.split()] for line in part.splitlines()]) for part in (start, goal)]


def test_puzzles_have_exactly_one_right_move_and_all_differ() -> None:
    puzzles = make(150, 3, {})
    assert len({puzzle["drawing"] for puzzle in puzzles}) == 150
    assert {puzzle["move"] for puzzle in puzzles} == {"translate", "rotate", "scale"}
    for puzzle in puzzles:
        start, goal = grids(puzzle["drawing"])
        right = [words for _, words, made in moves(start) if (made == goal).all()]
        assert right == [puzzle["answer"]]
        assert "#" in puzzle["drawing"]
        assert "*" in puzzle["drawing"]
        assert puzzle["drawing"].count("#") == start.sum()


def test_the_same_seed_gives_the_same_puzzles_and_a_longer_list_begins_with_a_shorter() -> None:
    assert make(30, 5, {}) == make(30, 5, {})
    assert make(60, 5, {})[:30] == make(30, 5, {})
    assert make(30, 5, {}) != make(30, 6, {})


def test_options_shape_the_grid() -> None:
    puzzle = make(1, 0, {"moves": ["scale"], "least": 8, "most": 8, "gap": "", "empty": " "})[0]
    assert puzzle["move"] == "scale"
    assert len(puzzle["drawing"].split("\n")[1]) == 8


@pytest.mark.parametrize(
    "options", [{"size": 5}, {"moves": ["flip"]}, {"least": 2}, {"least": 9, "most": 5}, {"moves": []}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(AttnscopeError, match="blocks"):
        make(3, 0, options)


def test_more_puzzles_than_there_are_is_refused_not_endless() -> None:
    with pytest.raises(AttnscopeError, match="not 5000 different"):
        make(5000, 0, {"least": 3, "most": 3, "moves": ["rotate"]})


def test_there_are_enough_problems_of_many_kinds_and_none_twice() -> None:
    problems = SETS["problems"].make(60, 1, {})
    assert len({problem["question"] for problem in problems}) == 60
    assert len({problem["kind"] for problem in problems}) >= 10
    assert all(problem["answer"] and problem["question"].strip() for problem in problems)
    assert SETS["problems"].make(60, 1, {}) == problems
    with pytest.raises(AttnscopeError, match="at most"):
        SETS["problems"].make(1000, 1, {})
