"""Bundled sets: puzzles with one right answer, the same for the same seed; problems enough and of many kinds."""

from __future__ import annotations

import numpy as np
import pytest

from attnscope.errors import AttnscopeError
from attnscope.text.sets import PROMPT_SETS
from attnscope.text.sets.blocks import is_held_out, make, moves

SETS = PROMPT_SETS.members


def grids(drawing: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    start, goal = drawing.removeprefix("Start:\n").split("\n\nGoal:\n")
    return [
        np.array([[cell != "." for cell in line.split()[1:]] for line in part.splitlines()]) for part in (start, goal)
    ]


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
    options = {"moves": ["scale"], "least": 8, "most": 8, "gap": "", "empty": " "}
    numbered, bare = (make(1, 0, {**options, "numbered": wish})[0] for wish in (True, False))
    assert numbered["move"] == "scale"
    assert len(bare["drawing"].split("\n")[1]) == 8
    assert numbered["drawing"].split("\n")[1] == "0" + bare["drawing"].split("\n")[1]


@pytest.mark.parametrize(
    "options",
    [
        {"size": 5},
        {"moves": ["flip"]},
        {"least": 2},
        {"least": 9, "most": 5},
        {"moves": []},
        {"part": "test"},
        {"least": "4"},
        {"numbered": "no"},
    ],
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


def test_what_may_be_trained_on_and_what_is_held_out_share_no_puzzle_whatever_the_seed() -> None:
    options = {"least": 4, "most": 5, "moves": ["translate", "rotate"]}
    train, held_out = (
        {puzzle["drawing"] for seed in range(3) for puzzle in make(150, seed, {**options, "part": part})}
        for part in ("train", "held-out")
    )
    assert not train & held_out
    everything = make(600, 9, options)
    of_all = sum(is_held_out(*grids(puzzle["drawing"])) for puzzle in everything) / len(everything)
    assert 0.08 < of_all < 0.17  # an eighth


def test_shapes_made_of_blocks_of_two_can_be_had_for_every_move_and_leave_the_others_as_they_were() -> None:
    options = {"moves": ["translate", "rotate"], "least": 6, "most": 6}
    for puzzle in make(30, 4, {**options, "doubled": 1.0}):
        rows, columns = np.nonzero(grids(puzzle["drawing"])[0])
        assert (rows.max() - rows.min()) % 2 == (columns.max() - columns.min()) % 2 == 1
    assert make(30, 4, {**options, "doubled": 0.0}) == make(30, 4, options)


def test_rows_of_large_grids_stay_in_line() -> None:
    lines = make(1, 0, {"least": 12, "most": 12})[0]["drawing"].split("\n\n")[0].splitlines()[1:]
    assert len({len(line) for line in lines}) == 1


def test_a_worked_answer_says_where_the_shape_is_and_ends_with_the_move() -> None:
    for puzzle in make(40, 2, {}):
        extents, _, move = puzzle["worked"].partition(": ")
        assert move == puzzle["answer"]
        for extent, grid in zip(extents.split(" > "), grids(puzzle["drawing"]), strict=True):
            rows, columns = np.nonzero(grid)
            assert extent == f"{rows.min()}-{rows.max()},{columns.min()}-{columns.max()}"
