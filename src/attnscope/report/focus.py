"""What a study is mainly about, and the numbers of that comparison in the direction that the study asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from attnscope.analysis.compared import family
from attnscope.analysis.comparisons import Comparison, Kind, comparisons
from attnscope.analysis.run import Run
from attnscope.analysis.sides import EVERY, MASS, Side
from attnscope.study.headline import HeadlineSpec
from attnscope.study.schema import FigureSpec
from attnscope.text.classes import OTHER

Row = dict[str, Any]


@dataclass(frozen=True)
class Focus:
    """What a study is mainly about."""

    comparisons: list[Comparison]
    """The same comparison in each model, in the direction that the study asks for."""
    queries: str
    classes: list[str]
    """Empty if the study doesn't say."""
    quantity: str = MASS
    """What is compared: attention on the classes, or a quantity, which has none."""
    asks_queries: bool = False
    """Whether the study asks about these queries and no others."""

    def is_about(self, comparison: Comparison) -> bool:
        """Whether it is one of the comparisons, in whichever direction."""
        return any({each.one, each.two} == {comparison.one, comparison.two} for each in self.comparisons)


def focus_of(run: Run) -> Focus | None:
    """What the study is mainly about; None if there is nothing to compare."""
    for statement in run.study.headline:
        named = focus_of_statement(run, statement) if statement.difference is not None else None
        if named is not None:
            return named
    every = [each for each in comparisons(run) if each.kind != "placebo"]
    for figure in run.study.figures:
        named = _of_figure(run, figure, every)
        if named is not None:
            return named
    for kind in ("control", "condition", "model"):
        mine = [each for each in every if each.kind == kind]
        if mine:
            one, two = (side.condition for side in (mine[0].one, mine[0].two))
            alike = [each for each in mine if (each.one.condition, each.two.condition) == (one, two)]
            return Focus(alike if kind != "model" else mine[:1], run.queries[0], _classes_shown(run))
    return None


def focus_of_statement(run: Run, statement: HeadlineSpec) -> Focus | None:
    """The comparison that a statement is about, in each model or under the first condition; None without prompts."""
    one, two = statement.difference or ("", "")
    is_class = statement.measure in run.token_sets
    if one in run.conditions:
        sides = [(Side(run, model, one), Side(run, model, two)) for model in run.compared_models]
        kind: Kind = "condition"
    else:
        sides, kind = [(Side(run, one, name), Side(run, two, name)) for name in run.conditions[:1]], "model"
    mine = [Comparison(kind, *pair) for pair in sides if all(run.has(side.model, side.condition) for side in pair)]
    queries = statement.queries or run.queries[0]
    classes = [statement.measure] if is_class else [EVERY]
    quantity = MASS if is_class else statement.measure
    return Focus(mine, queries, classes, quantity, statement.queries is not None) if mine else None


def _of_figure(run: Run, figure: FigureSpec, every: list[Comparison]) -> Focus | None:
    """What a map of a difference shows, if it is of classes and the difference is one of the run's comparisons."""
    extra = figure.model_dump()
    wanted, names = extra.get("difference"), _listed(extra.get("measure"))
    if not wanted or not names or not set(names) <= set(run.token_sets):
        return None
    mine = [each for each in every if set(each.sides) == set(wanted)]
    if not mine:
        return None
    asked = [each if each.sides == tuple(wanted) else _reversed(each) for each in mine]
    return Focus(asked, figure.queries or run.queries[0], names)


def _classes_shown(run: Run) -> list[str]:
    """The first class that a figure names."""
    for figure in run.study.figures:
        extra = figure.model_dump()
        for name in [*_listed(extra.get("classes")), *_listed(extra.get("measure"))]:
            if name in run.token_sets and name != OTHER:
                return [name]
    return []


def _listed(given: object) -> list[str]:
    """Names in a figure's option, which may be one or several."""
    return [given] if isinstance(given, str) else list(given) if isinstance(given, list | tuple) else []


def _reversed(comparison: Comparison) -> Comparison:
    return replace(comparison, one=comparison.two, two=comparison.one)


def of_run(comparison: Comparison) -> Comparison:
    """The run's own comparison of two sides, in the direction that its tables have; the one given if it has none."""
    known = {(each.one, each.two): each for each in comparisons(comparison.one.run)}
    one, two = comparison.one, comparison.two
    return known.get((one, two)) or known.get((two, one)) or comparison


def row_of(comparison: Comparison, queries: str, token_class: str | None, quantity: str = MASS) -> Row | None:
    """The mean over heads of one class: the one asked for, or the one that changes most clearly.

    The numbers are those of the run's tables, turned round if these have the comparison the other way.
    """
    known = of_run(comparison)
    tested = family(known, queries, quantity)
    if tested is None:
        return None
    rows = tested[1].filter(pl.col("n") > 0, pl.col("token_class") != OTHER)
    if token_class is not None:
        rows = rows.filter(pl.col("token_class") == token_class)
    clearest = rows.sort(pl.col("q").is_null(), pl.col("size").abs(), descending=[False, True], nulls_last=True)
    row = next(clearest.iter_rows(named=True), None)
    return row if row is None or known.one == comparison.one else _turned(row)


def _turned(row: Row) -> Row:
    """A row of a comparison, as that of the opposite difference."""
    pairs = (("one", "two"), ("up", "down"), ("rising", "falling"))
    swapped = {name: row[other] for one, two in pairs for name, other in ((one, two), (two, one))}
    signs = {name: _minus(row[name]) for name in ("difference", "size", "median", "skew")}
    ends = {"low": "high", "high": "low", "size_low": "size_high", "size_high": "size_low"}
    return {**row, **swapped, **signs, **{name: _minus(row[other]) for name, other in ends.items()}}


def _minus(value: float | None) -> float | None:
    return None if value is None else -value
