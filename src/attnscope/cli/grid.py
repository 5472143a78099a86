"""Tables for a terminal, as wide as it is and no wider: text wraps, numbers don't, and what has no room goes below.

Where columns don't fit side by side, the table is continued in a second one that repeats the first column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

LEAST = 12  # columns of a terminal that a column of text has at least, if it needs them
GAP = 2  # between two columns

Cell = str | Text


@dataclass(frozen=True)
class Column:
    """A column of a table. wraps: its cells may be broken into lines. left: they begin on the left, as words do."""

    name: str
    wraps: bool = False
    left: bool = False

    @property
    def widest_word(self) -> int:
        return max((cell_len(word) for word in self.name.split()), default=0)


def numbers(*names: str) -> list[Column]:
    return [Column(name) for name in names]


def text(*names: str) -> list[Column]:
    return [Column(name, wraps=True, left=True) for name in names]


def print_grid(
    console: Console,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    faint: Sequence[bool] = (),
) -> None:
    """Print a table. faint: which rows are shown dimly."""
    console.print(Text(title, style="italic"))
    shown = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    for places, widths in _parts(columns, shown, console.width):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
        for place, width in zip(places, widths, strict=True):
            justify = "left" if columns[place].left else "right"
            name = Text(columns[place].name)
            table.add_column(name, width=width, overflow="fold", justify=justify)  # type: ignore[arg-type]
        for number, row in enumerate(shown):
            dim = "dim" if number < len(faint) and faint[number] else None
            table.add_row(*(row[place] for place in places), style=dim)
        console.print(table)
        console.print()


def _parts(columns: Sequence[Column], rows: Sequence[Sequence[Text]], room: int) -> list[tuple[list[int], list[int]]]:
    """The columns of each table that is printed, by number, and their widths."""
    natural = [_widest([row[place] for row in rows]) for place in range(len(columns))]
    widths = [max(width, cell_len(column.name)) for width, column in zip(natural, columns, strict=True)]
    if _together(widths) <= room:
        return [(list(range(len(columns))), widths)]
    widths = [max(width, column.widest_word) for width, column in zip(natural, columns, strict=True)]
    least = [
        min(width, max(LEAST, column.widest_word)) if column.wraps else width
        for width, column in zip(widths, columns, strict=True)
    ]
    parts: list[list[int]] = [[0]]
    for place in range(1, len(columns)):
        if len(parts[-1]) > 1 and _together([least[each] for each in (*parts[-1], place)]) > room:
            parts.append([0])
        parts[-1].append(place)
    return [(part, _shrunk([widths[each] for each in part], [least[each] for each in part], room)) for part in parts]


def _widest(cells: Sequence[Text]) -> int:
    return max((cell_len(line) for cell in cells for line in cell.plain.split("\n")), default=0)


def _together(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrunk(widths: list[int], least: list[int], room: int) -> list[int]:
    """Take from the widest columns what is too much: of those that can be narrower, then of any."""
    for limit in (least, [1] * len(widths)):
        while _together(widths) > room:
            places = [place for place, width in enumerate(widths) if width > limit[place]]
            if not places:
                break
            widths[max(places, key=lambda place: widths[place])] -= 1
    return widths
