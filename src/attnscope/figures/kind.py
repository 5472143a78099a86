"""What a kind of figure declares.

A figure is a table with declared columns, a chart drawn from the table alone, and prose written from the table alone.
So any table that has the columns can be drawn, and what is said of a chart is said of its numbers. A kind has three
parts, each of which can be read and tested by itself: statistics (run -> table), chart (table -> Vega-Lite), prose
(table -> document).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import polars as pl

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError, near
from attnscope.figures.compose import Description
from attnscope.figures.options import Options
from attnscope.figures.prose import Document

T = TypeVar("T", bound=Options)


@dataclass(frozen=True)
class Look:
    """What the table does not say: titles and caption, and how wide the screen is."""

    title: str = ""
    y: str = ""
    caption: str = ""
    among: str = "among what was tested together"
    """What q is the false discovery rate of."""
    number_from: int = 0
    room: int | None = None
    """Width in pixels of a screen that shows title and caption itself; None for a picture that stands alone."""


@dataclass(frozen=True)
class Column:
    """A column of a figure's table."""

    name: str
    type: Any
    meaning: str
    optional: bool = False
    gaps: bool = False
    """Whether it may be empty in some rows."""


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[T]):
    """One kind of figure."""

    name: str
    about: str
    """A few words for the reference."""
    options: type[T]
    """What its line in a study file may ask for."""
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    """The columns that distinguish one row from another."""
    table: Callable[[Run, T], pl.DataFrame]
    look: Callable[[Run, T, pl.DataFrame], Look]
    chart: Callable[[pl.DataFrame, Look], Description]
    prose: Callable[[pl.DataFrame, Look], Document]
    legend: Callable[[pl.DataFrame, Look], str] = lambda table, look: ""
    """What the signs and shades in the picture mean, as the end of its caption: begins with a space, or is empty."""
    apart: str = "panel"
    """The column that separates panels: where several tables are drawn side by side, it also says which is which."""

    def checked(self, table: pl.DataFrame, where: str) -> pl.DataFrame:
        """The table with its columns in their types; refused if one is missing or can't be read."""
        for column in self.columns:
            if column.name not in table.columns and not column.optional:
                raise AttnscopeError(
                    f"the table has no column '{column.name}'",
                    where=where,
                    allowed=f"{near(column.name, table.columns)}; {self.name} needs {', '.join(self.needed)}",
                    todo="rename or add the column",
                )
        absent = [column for column in self.columns if column.name not in table.columns]
        table = table.with_columns(pl.lit(None, dtype=column.type).alias(column.name) for column in absent)
        try:
            table = table.select(pl.col(column.name).cast(column.type) for column in self.columns)
        except pl.exceptions.PolarsError:
            self._refuse_types(table, where)
            raise
        self._refuse_gaps(table, where)
        self._refuse_duplicates(table, where)
        return table

    def _refuse_types(self, table: pl.DataFrame, where: str) -> None:
        for column in self.columns:
            try:
                table[column.name].cast(column.type)
            except pl.exceptions.PolarsError:
                raise AttnscopeError(
                    f"column '{column.name}' can't be read as {column.type}",
                    where=where,
                    allowed=column.meaning,
                    todo="fix the table",
                ) from None

    def _refuse_gaps(self, table: pl.DataFrame, where: str) -> None:
        for column in self.columns:
            if column.optional or column.gaps:
                continue
            values = table[column.name]
            empty = values.is_null() | (values.is_nan() if values.dtype.is_float() else pl.Series([False]))
            if empty.any() or (values.dtype == pl.String and (values == "").any()):
                raise AttnscopeError(
                    f"column '{column.name}' has empty cells",
                    where=where,
                    allowed=column.meaning,
                    todo="fill them, or leave the rows out",
                )

    def _refuse_duplicates(self, table: pl.DataFrame, where: str) -> None:
        doubles = table.filter(table.select(self.keys).is_duplicated())
        if len(doubles):
            first = ", ".join(f"{key} {doubles[key][0]}" for key in self.keys)
            raise AttnscopeError(
                f"two rows have the same {first}",
                where=where,
                allowed=f"one row for each {', '.join(self.keys)}",
                todo="fix the table",
            )

    @property
    def needed(self) -> list[str]:
        return [column.name for column in self.columns if not column.optional]
