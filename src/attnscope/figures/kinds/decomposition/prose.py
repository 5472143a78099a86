"""Table -> what the points show: each quantity with its interval, and whether redistribution adds to dilution."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import CLASSES
from attnscope.analysis.run import Run
from attnscope.analysis.sides import DILUTION, REDISTRIBUTION, SPLIT
from attnscope.analysis.spread import extent
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.decomposition.options import DecompositionOptions
from attnscope.figures.prose import Document, Table, document

Row = dict[str, Any]

AMONG = f"q is the false discovery rate {CLASSES}."
MOVES = f"heads in which attention moves (q < {FALSE_DISCOVERIES})"


def look(run: Run, options: DecompositionOptions, table: pl.DataFrame) -> Look:
    tested = table["low"].is_not_null().any()
    nothing = bool((table["value"] == 0).all())
    why = sentences.untested(extent(table["n"])[0], selection.few_clusters(run), same=nothing)
    interval = "bar: 95 % interval (bootstrap-t)" if tested else why
    lacking = selection.lacking_words(
        run, options.model_copy(update={"queries": SPLIT}), selection.classes(run, options), table["n"]
    )
    return Look(
        title=options.title or "Diluted or redistributed",
        y=options.y or "change in attention",
        caption=f"Attention from {selection.group_words(SPLIT)}; mean over all heads and n = "
        f"{selection.prompts_words(run, table['n'])}, paired by prompt; {interval}. "
        f"Change is dilution plus redistribution; dilution relative to the base prompt is not tested.{lacking}",
    )


def write(table: pl.DataFrame, look: Look) -> Document:
    titles, quantities = list(dict.fromkeys(table["panel"])), list(dict.fromkeys(table["quantity"]))
    rows: list[tuple[str, ...]] = []
    for (title, name), part in table.group_by("panel", "token_class", maintain_order=True):
        found = {row["quantity"]: row for row in part.iter_rows(named=True)}
        values = [_value(found[quantity]) if quantity in found else "" for quantity in quantities]
        rows.append((f"{title}, {name}", *values, _verdict(found) or "", _heads(found.get(REDISTRIBUTION))))
    columns = ("", *quantities, "is redistribution with or against dilution?", MOVES)
    return document(
        look.title,
        {
            "Overview": [
                f"Points in {sentences.counted(len(titles), 'panel')} ({sentences.listed(titles)}): the "
                f"{sentences.listed(quantities)} of each class.",
                look.caption,
                AMONG if table["q"].is_not_null().any() else None,
            ],
            "Axes": [f"Horizontal: {look.y or 'change'}, all panels on one scale. Vertical: the classes."],
            "Numbers": [Table(columns, tuple(rows), tuple(False for _ in rows))],
        },
    )


def _value(row: Row) -> str:
    words = sentences.with_interval(row["value"], row["low"], row["high"])
    if row["q"] is None:
        return words
    words += f", {sentences.rate(row['q'])}"
    if row["q"] >= FALSE_DISCOVERIES:
        return f"{words}, not significant"
    return words if abs(row["value"]) > (row["floor"] or 0) else f"{words}, within rounding error"


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
        return "there is no dilution"
    return "with it" if dilution * moved["value"] > 0 else "against it"


def _heads(row: Row | None) -> str:
    if row is None or row["heads"] is None or row["q"] is None:
        return ""
    return f"towards it in {row['up']} heads, away from it in {row['down']}, of {row['heads']}"
