"""Table -> what the points show: each quantity with its interval, and whether redistribution adds to dilution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.run import Run
from attnscope.analysis.sides import DILUTION, REDISTRIBUTION, SPLIT
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.decomposition.options import DecompositionOptions
from attnscope.figures.prose import Document, Strong, Text, document

Row = dict[str, Any]

MOVES = f"Heads in which attention moves significantly (q < {FALSE_DISCOVERIES})"


def look(run: Run, options: DecompositionOptions, table: pl.DataFrame) -> Look:
    tested = table["low"].is_not_null().any()
    interval = "bar: 95 % interval (bootstrap-t)" if tested else "too few prompts for intervals"
    return Look(
        title=options.title or "Diluted or redistributed",
        y=options.y or "change in attention",
        caption=f"Attention from {selection.group_words(SPLIT)}; mean over all heads and n = "
        f"{selection.prompts_words(run, table['n'])}, paired by prompt; {interval}. "
        "Change is dilution plus redistribution; dilution relative to the base prompt is not tested.",
    )


def write(table: pl.DataFrame, look: Look) -> Document:
    numbers: list[Text] = []
    facts: dict[str, dict[str, str | None]] = {}
    titles = list(dict.fromkeys(table["panel"]))
    for title in titles:
        panel = table.filter(pl.col("panel") == title)
        verdicts: dict[str, list[str]] = {}
        moved: list[str] = []
        for name in dict.fromkeys(panel["token_class"]):
            rows = {row["quantity"]: row for row in panel.filter(pl.col("token_class") == name).iter_rows(named=True)}
            values = [f"{quantity} {_value(row)}" for quantity, row in rows.items()]
            numbers.append((Strong(f"{title}, {name}"), f": {'; '.join(values)}."))
            if verdict := _verdict(rows):
                verdicts.setdefault(verdict, []).append(name)
            moved += _heads(name, rows.get(REDISTRIBUTION))
        directions = [f"{verdict} on {sentences.listed(names)}" for verdict, names in verdicts.items()]
        facts.setdefault("Redistribution", {})[title] = ", ".join(directions)
        facts.setdefault(MOVES, {})[title] = ", ".join(moved)
    quantities = list(dict.fromkeys(table["quantity"]))
    return document(
        look.title,
        {
            "Overview": [
                f"Points in {sentences.counted(len(titles), 'panel')} ({sentences.listed(titles)}): the "
                f"{sentences.listed(quantities)} of each class.",
                look.caption,
            ],
            "Axes": [f"Horizontal: {look.y or 'change'}, all panels on one scale. Vertical: the classes."],
            "Numbers": numbers,
            "Observations": [sentences.by_panel(what, found) for what, found in facts.items()],
        },
    )


def _value(row: Row) -> str:
    words = sentences.with_interval(row["value"], row["low"], row["high"])
    if row["q"] is None:
        return words
    return f"{words}, {sentences.rate(row['q'])}{'' if row['q'] < FALSE_DISCOVERIES else ', not significant'}"


def _verdict(rows: dict[str, Row]) -> str | None:
    """What redistribution does to a class besides dilution, if it is significant."""
    moved = rows.get(REDISTRIBUTION)
    if moved is None or moved["q"] is None or DILUTION not in rows:
        return None
    if moved["q"] >= FALSE_DISCOVERIES:
        return "not significant"
    if abs(moved["value"]) <= (moved["floor"] or 0):
        return "within rounding error"
    dilution = rows[DILUTION]["value"]
    if dilution == 0:
        return "without dilution"
    return "adds to dilution" if dilution * moved["value"] > 0 else "counteracts dilution"


def _heads(name: str, row: Row | None) -> Iterator[str]:
    if row is not None and row["heads"] is not None and row["q"] is not None:
        yield f"{name} {row['up']} to and {row['down']} away, of {row['heads']}"
