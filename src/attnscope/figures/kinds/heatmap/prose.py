"""Table -> what the map shows: its highest and lowest heads, how many change, and which layers stand out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.matching import BY_NUMBER, matched
from attnscope.analysis.means import null_of
from attnscope.analysis.run import Run
from attnscope.analysis.spread import extent
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Look
from attnscope.figures.kinds.heatmap.options import HeatmapOptions
from attnscope.figures.kinds.heatmap.statistics import panels, shown_measures, tested_with
from attnscope.figures.prose import Document, Strong, Text, by_panel, document

TESTED = ", tested against "
FEW = "too few prompts or clusters for one head alone to be significant"


def look(run: Run, options: HeatmapOptions, table: pl.DataFrame) -> Look:
    measures = shown_measures(run, options)
    names = sentences.listed([selection.class_label(run, each) for each in measures])
    of_classes = set(measures) <= set(run.token_sets)
    words = selection.measure_words(run, measures[0]) or f"attention on {names}"
    if options.value == "enrichment" and of_classes:
        words += ", relative to uniform attention"
    return Look(
        title=options.title or f"All heads: {'change in ' if options.difference else ''}{words}",
        y=options.y or (f"change in {words}" if options.difference else words),
        caption=_caption(run, options, table, measures),
        among=tested_with(run, options),
        number_from=options.number_from,
    )


def _caption(run: Run, options: HeatmapOptions, table: pl.DataFrame, measures: list[str]) -> str:
    whose = selection.whose_words(run, selection.queries(run, options), measures[0])
    title = selection.measure_words(run, measures[0])
    what = f"change in {title or 'attention'}" if options.difference else title or "attention"
    what = what[0].upper() + what[1:] + (f", measured from {whose}" if title else f" from {whose}")
    prompts = selection.prompts_words(run, table["n"])
    null = null_of(run, measures)
    alone = "one number per head" + ("" if null is None else f"{TESTED}{null:g}")
    how = f"paired by prompt{_matching(run, options)}" if options.difference else alone
    is_empty = set(measures) <= set(run.token_sets) and not (table["value"] != 0).any()
    return (
        f"{what}, mean over n = {prompts}, {how}{_untested(run, options, table)}."
        + (" It is 0 everywhere: no token belongs to this class." if is_empty else "")
        + selection.lacking_words(run, options, measures, table["n"], summed=len(measures) > 1)
        + (" Layers and heads are numbered from 1." if options.number_from else "")
    )


def _matching(run: Run, options: HeatmapOptions) -> str:
    """How the heads of two models are paired."""
    pairs = [
        (panel.base, panel.side)
        for panel in panels(run, options)
        if panel.base is not None and panel.base.model != panel.side.model
    ]
    methods = dict.fromkeys(matched(*pair).method for pair in pairs)
    how = "".join(f", {method}" for method in methods)
    if methods and BY_NUMBER not in methods:
        how += f"; layers and heads are {pairs[0][0].model}'s"
    return how


def _untested(run: Run, options: HeatmapOptions, table: pl.DataFrame) -> str:
    if not options.difference or not table["q"].is_null().any():
        return ""
    some = "" if table["q"].is_null().all() else " in some cells"
    without = table.filter(pl.col("low").is_null())
    if len(without):
        same = bool((without["value"] == 0).all())
        why = sentences.untested(extent(without["n"])[0], selection.few_clusters(run), same=same)
        return f"; {why}{some}"
    return f"; not tested{some}, because the edit alone changes it or one side has none of it"


def write(table: pl.DataFrame, look: Look) -> Document:
    numbers: list[Text] = []
    titles = list(dict.fromkeys(table["panel"]))
    facts: dict[str, dict[str, str | None]] = {}
    verdict = "Differ significantly from zero" if TESTED in look.caption else "Change significantly"
    for title in titles:
        cells = table.filter(pl.col("panel") == title)
        ordered = cells.sort("value", descending=True, maintain_order=True)
        none = bool((cells["q"] >= FALSE_DISCOVERIES).all()) and cells["q"].is_not_null().all()
        for word, some in (("highest", ordered.head(5)), ("lowest", ordered.reverse().head(3))):
            heads = sentences.listed(list(_heads(cells, some, noted=not none)))
            numbers.append((Strong(title), f": {word} {heads}{'; none is significant' if none else ''}."))
        for what, words in _facts(cells, verdict):
            facts.setdefault(what, {})[title] = words
    down = "the layer's heads, the largest in size first" if table["row"].is_not_null().all() else _range("head", table)
    return document(
        look.title,
        {
            "Overview": [
                f"A map of layers across and heads down, coloured by {look.y or 'value'}.",
                look.caption,
                f"q is the false discovery rate {look.among}." if table["q"].is_not_null().any() else None,
            ],
            "Axes": [
                f"Across: {_range('layer', table)}. Down: {down}.",
                "All panels share one scale." if table["panel"].n_unique() > 1 else None,
            ],
            "Numbers": numbers,
            "Observations": by_panel(titles, facts),
        },
    )


def _facts(cells: pl.DataFrame, verdict: str) -> Iterator[tuple[str, str | None]]:
    """Facts that every panel has, each with its words for this panel. verdict: what significant heads do."""
    mean = sentences.number(float(cells["value"].mean()))  # type: ignore[arg-type]
    yield "Mean over heads", mean
    heads = sentences.counted(len(cells), "head")
    if cells["q"].is_not_null().any():
        above_floor = pl.col("value").abs() > pl.col("floor").fill_null(0)
        significant = cells.filter(pl.col("q") < FALSE_DISCOVERIES, above_floor)
        up, down = int((significant["value"] > 0).sum()), int((significant["value"] < 0).sum())
        counts = f"{len(significant)} of {heads}" + (f", {up} up and {down} down" if len(significant) else "")
        yield f"{verdict} (q < {FALSE_DISCOVERIES})", FEW if too_few(cells) else counts
        same = cells.filter(pl.col("same_q") < FALSE_DISCOVERIES)
        if cells["same_q"].is_not_null().any():
            both = len(same.filter(pl.col("q") < FALSE_DISCOVERIES))
            small = f" ({both} of them change{'s' * (both == 1)} significantly)" if both else ""
            yield "Change shown to be within the margin", f"{len(same)} of {heads}{small}"
        hidden = len(cells.filter(pl.col("q") < FALSE_DISCOVERIES, ~above_floor))
        yield "Not counted, though q is small, as rounding could cause the change", f"{hidden}" if hidden else None
    elif (cells["value"] < 0).any():
        yield "Above zero (not tested)", f"{int((cells['value'] > 0).sum())} of {heads}"
    by_layer = cells.group_by("layer", maintain_order=True).agg(pl.col("value").mean())
    values = {f"layer {row['layer']}": row["value"] for row in by_layer.iter_rows(named=True)}
    yield "Largest mean of a layer (not tested)", sentences.largest(values)
    yield "Smallest mean of a layer (not tested)", sentences.largest(values, most=False)


def _heads(cells: pl.DataFrame, some: pl.DataFrame, *, noted: bool) -> Iterator[str]:
    """Some heads and their numbers; where more heads have a number than would be named, only how many."""
    for (value,), named in some.group_by("value", maintain_order=True):
        alike = cells.filter(pl.col("value") == value)
        if len(alike) == len(named):
            yield from (_head(row, noted=noted) for row in named.iter_rows(named=True))
        else:
            yield f"{sentences.number(value) if value else 0} in {len(alike)} heads{_noted(alike) if noted else ''}"


def _noted(alike: pl.DataFrame) -> str:
    """Of heads with one number, in brackets: how many are not significant, if they were tested."""
    count = sum(bool(_remark(row)) for row in alike.iter_rows(named=True))
    if not count:
        return ""
    return " (not significant)" if count == len(alike) else f" ({count} of them not significant)"


def _head(row: dict[str, Any], *, noted: bool = True) -> str:
    """A head and its number; of a change, whether it is significant, if that is to be noted."""
    return f"layer {row['layer']} head {row['head']} {sentences.number(row['value'])}{_remark(row) if noted else ''}"


def _remark(row: dict[str, Any]) -> str:
    """Why a change does not count, in brackets; empty if it does, or was not tested."""
    if row["q"] is None:
        return ""
    if row["q"] >= FALSE_DISCOVERIES:
        return f" (not significant, q = {row['q']:.2g})"
    return "" if abs(row["value"]) > (row["floor"] or 0) else " (within rounding error)"


def _range(what: str, table: pl.DataFrame) -> str:
    numbers = sorted(set(table[what]))
    if len(numbers) == numbers[-1] - numbers[0] + 1:
        return f"{what} {numbers[0]} to {numbers[-1]}"
    return f"{what}s {sentences.listed([str(each) for each in numbers])}"


def too_few(table: pl.DataFrame) -> bool:
    """Whether no head could be significant by itself, and none is."""
    least: Any = table["least_q"].min()
    return least is not None and least >= FALSE_DISCOVERIES and not (table["q"] < FALSE_DISCOVERIES).any()
