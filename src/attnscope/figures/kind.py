"""What a kind of figure promises, and how it is found.

A figure is a table with declared columns, a chart drawn from the table alone, and a reading written from the table
alone. So any table that has the columns can be drawn, and what is said of a chart is said of its numbers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError, near
from attnscope.figures.compose import Description
from attnscope.study.schema import FigureSpec


@dataclass(frozen=True)
class Look:
    """What the table doesn't say: titles, and the caption's facts."""

    title: str = ""
    y: str = ""
    caption: str = ""
    number_from: int = 0
    room: int | None = None
    """Pixels across on a screen that tells title and caption itself; None for a picture that stands alone."""


@dataclass(frozen=True)
class Field:
    """A column of a figure's table."""

    name: str
    type: Any
    meaning: str
    optional: bool = False
    gaps: bool = False
    """Whether it may be empty in some rows."""


@dataclass(frozen=True)
class Kind:
    """One kind of figure."""

    name: str
    about: str
    fields: tuple[Field, ...]
    table: Callable[[Run, FigureSpec], pl.DataFrame]
    look: Callable[[Run, FigureSpec, pl.DataFrame], Look]
    draw: Callable[[pl.DataFrame, Look], Description]
    read: Callable[[pl.DataFrame, Look], str]
    keys: tuple[str, ...]
    """The columns that tell one row from another."""
    marks: Callable[[pl.DataFrame, Look], str] = lambda made, seen: ""
    """What the marks in the picture mean, as the end of its caption: begins with a blank, or is empty."""
    apart: str = "panel"
    """The column whose words stand apart in the picture: where several tables are drawn side by side, it tells them."""

    def checked(self, table: pl.DataFrame, where: str) -> pl.DataFrame:
        """The table with its columns in their types; refused if one is missing or can't be read so."""
        for each in self.fields:
            if each.name not in table.columns and not each.optional:
                raise AttnscopeError(
                    f"the table has no column '{each.name}'",
                    where=where,
                    allowed=f"{near(each.name, table.columns)}; {self.name} needs {', '.join(self.needed)}",
                    todo="rename or add the column",
                )
        nothing = [each for each in self.fields if each.name not in table.columns]
        table = table.with_columns(pl.lit(None, dtype=each.type).alias(each.name) for each in nothing)
        try:
            table = table.select(pl.col(each.name).cast(each.type) for each in self.fields)
        except pl.exceptions.PolarsError:
            self._refuse_types(table, where)
            raise
        self._refuse_gaps(table, where)
        return table

    def _refuse_types(self, table: pl.DataFrame, where: str) -> None:
        for each in self.fields:
            try:
                table[each.name].cast(each.type)
            except pl.exceptions.PolarsError:
                raise AttnscopeError(
                    f"column '{each.name}' can't be read as {each.type}",
                    where=where,
                    allowed=each.meaning,
                    todo="mend the table",
                ) from None

    def _refuse_gaps(self, table: pl.DataFrame, where: str) -> None:
        for each in self.fields:
            if each.optional or each.gaps:
                continue
            column = table[each.name]
            empty = column.is_null() | (column.is_nan() if column.dtype.is_float() else pl.Series([False]))
            if empty.any() or (column.dtype == pl.String and (column == "").any()):
                raise AttnscopeError(
                    f"column '{each.name}' has empty cells",
                    where=where,
                    allowed=each.meaning,
                    todo="fill them, or leave the rows out",
                )
        doubles = table.filter(table.select(self.keys).is_duplicated())
        if len(doubles):
            first = ", ".join(f"{key} {doubles[key][0]}" for key in self.keys)
            raise AttnscopeError(
                f"two rows are of the same place: {first}",
                where=where,
                allowed=f"one row for each {', '.join(self.keys)}",
                todo="mend the table",
            )

    @property
    def needed(self) -> list[str]:
        return [each.name for each in self.fields if not each.optional]


def kinds() -> dict[str, Kind]:
    """Every kind of figure, by name: each module in `kinds/` is one."""
    from attnscope.figures import kinds as package

    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    return {module.KIND.name: module.KIND for module in modules if hasattr(module, "KIND")}


def find_kind(name: str, where: str) -> Kind:
    known = kinds()
    if name not in known:
        raise AttnscopeError(
            f"there is no kind of figure '{name}'", where=where, allowed=near(name, known), todo="use one of these"
        )
    return known[name]
