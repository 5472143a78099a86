"""Tables in a terminal are never wider than it, and lose nothing."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from attnscope.cli.grid import Column, numbers, print_grid, text

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=40)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
RULE = "\u2500"


def printed(columns: list[Column], rows: list[list[str]], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_grid(console, "a title", columns, rows)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def letters(output: str) -> str:
    return "".join(sorted(output.replace(" ", "").replace("\n", "").replace(RULE, "")))


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[Column], list[list[str]], int]:
    width = draw(st.integers(50, 120))
    columns = [Column(draw(NAMES), draw(st.booleans()), draw(st.booleans())) for _ in range(draw(st.integers(1, 7)))]
    row = st.tuples(*(NAMES if column.wraps else WORDS for column in columns)).map(list)
    return columns, draw(st.lists(row, min_size=1, max_size=4)), width


@given(grids())
def test_no_line_is_too_wide_and_nothing_is_lost(grid: tuple[list[Column], list[list[str]], int]) -> None:
    columns, rows, width = grid
    output = printed(columns, rows, width)
    lines = output.splitlines()
    assert all(len(line) <= width for line in lines)
    assert "\u2026" not in output  # nothing is cut off
    again = sum(line.startswith(RULE) for line in lines) - 1  # the first column is in every part of the table
    first = columns[0].name + "".join(row[0] for row in rows)
    whole = "a title" + "".join([column.name for column in columns] + [cell for row in rows for cell in row])
    assert letters(output) == letters(whole + again * first)


def test_numbers_stay_whole_and_names_wrap() -> None:
    columns = [*text("class"), *numbers("difference", "q")]
    row = ["a class with a name that is far longer than any name should be", "-0.0352 (-0.0424 to -0.0267)", "< 0.0001"]
    output = printed(columns, [row], 60)
    assert "-0.0352 (-0.0424 to -0.0267)  < 0.0001" in output
    assert max(map(len, output.splitlines())) <= 60


def test_what_has_no_room_beside_the_others_is_below_them() -> None:
    columns = [*text("layer"), *numbers(*(f"class {number}" for number in range(9)))]
    output = printed(columns, [["0", *["0.0456  x0.73"] * 9], ["1", *["0.0456  x0.73"] * 9]])
    assert output.count("layer") == 2
    assert output.count("0.0456  x0.73") == 18
