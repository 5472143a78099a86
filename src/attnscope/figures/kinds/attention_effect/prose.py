"""Table -> whether attention predicts effect, over heads. A correlation is no cause, and the words never say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from attnscope.analysis.attention_effect import FEWEST_HEADS
from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import INTERVENTIONS
from attnscope.analysis.run import Run
from attnscope.figures import selection, sentences
from attnscope.figures.interventions import SCORES, about_score, label_of, score_of, score_words
from attnscope.figures.kind import Look
from attnscope.figures.kinds.attention_effect.options import AttentionEffectOptions
from attnscope.figures.kinds.attention_effect.statistics import measure_words, shown_measures, swept
from attnscope.figures.prose import Document, Strong, Text, document

Row = dict[str, Any]

NAMED = 5  # heads named in sentences


def look(run: Run, options: AttentionEffectOptions, table: pl.DataFrame) -> Look:
    measures, score = shown_measures(run, options), score_of(run, options.score)
    spec, words = swept(run, options), measure_words(run, options)
    whose = selection.whose_words(run, selection.queries(run, options), measures[0])
    panels = table.unique("panel", keep="first", maintain_order=True).to_dicts()
    found = f" Over heads: {correlation_words(panels[0])}." if len(panels) == 1 else ""
    other = bool((table["tested"] != table["n"]).any())
    return Look(
        title=options.title or "Does attention predict effect?",
        y=options.y or SCORES[score].axis,
        caption=f'Each point is a head. Across: {words}, from {whose}. Up: what "{label_of(spec)}" does in that head '
        f"alone. Means over n = {selection.prompts_words(run, table['n'])} that have both.{found} Intervals of "
        f"correlations: prompts are drawn, not heads (95 %, bootstrap). {about_score(run, score)}"
        + (" Significance is that of the effect in all prompts that have it." if other else "")
        + selection.lacking_words(run, options, measures, table["n"], summed=len(measures) > 1)
        + (" Layers and heads are numbered from 1." if options.number_from else ""),
        among=INTERVENTIONS,
        number_from=options.number_from,
    )


def significant(table: pl.DataFrame) -> pl.DataFrame:
    """The heads whose effect is."""
    return table.filter(pl.col("q") < FALSE_DISCOVERIES)


def axis_of(table: pl.DataFrame) -> str:
    """What is across, in words."""
    return next(iter(table["measure"].drop_nulls()), "attention")


def correlation_words(row: Row) -> str:
    """`Spearman's correlation -0.62 (-0.71 to -0.48)`."""
    return f"Spearman's correlation {_interval(row, 'spearman')}"


def _interval(row: Row, name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return "none"
    return f"{value:.2f}" + ("" if low is None else f" ({low:.2f} to {high:.2f})")


def write(table: pl.DataFrame, look: Look) -> Document:
    panels = list(dict.fromkeys(table["panel"]))
    numbers: list[Text] = []
    for title in panels:
        panel = table.filter(pl.col("panel") == title)
        start = (Strong(title), ": ") if len(panels) > 1 else ()
        numbers += [(*start, sentence) for sentence in _of_panel(panel)]
    return document(
        look.title,
        {
            "Overview": [
                f"A point per head, in {sentences.counted(len(panels), 'panel')} ({sentences.listed(panels)}).",
                look.caption,
            ],
            "Axes": [f"Across: {axis_of(table)}. Up: {look.y or 'effect'}; the gray line is no effect."],
            "Numbers": [
                *numbers,
                f"q is the false discovery rate {look.among}." if table["q"].is_not_null().any() else None,
                "A correlation over heads says whether attention and effect go together, and nothing about why.",
            ],
        },
    )


def _of_panel(panel: pl.DataFrame) -> Iterator[str]:
    row = panel.row(0, named=True)
    heads = sentences.counted(len(panel), "head")
    over = f"over {heads} and {sentences.prompts_in_clusters(row['n'] or 0, row['clusters'] or row['n'] or 0)}"
    yield f"{_verdict(row, over, len(panel))}."
    if row["pearson"] is not None:
        yield f"Pearson's correlation: {_interval(row, 'pearson')}."
    if panel["q"].is_not_null().any():
        yield _strongest(panel, heads)


def _verdict(row: Row, over: str, heads: int) -> str:
    if row["spearman"] is None:
        why = "there are too few heads" if heads < FEWEST_HEADS else "attention or effect is the same in every head"
        return f"There is no correlation of attention and effect {over}: {why}"
    shown = f"Spearman's correlation of attention and effect is {_interval(row, 'spearman')}, {over}"
    if row["spearman_low"] is None:
        return f"{shown}; {sentences.untested(row['n'] or 0, row['clusters'])}"
    if row["spearman_low"] <= 0 <= row["spearman_high"]:
        return f"{shown}. That attention predicts effect can't be shown: the interval contains 0 (not significant)"
    way = "higher" if row["spearman"] > 0 else "lower"
    name = score_words(row["score"]).name
    return (
        f"{shown}. Attention predicts effect, significantly (the interval excludes 0): among these heads, more "
        f"attention goes with a {way} value of {name} once the head is changed"
    )


def _strongest(panel: pl.DataFrame, heads: str) -> str:
    """The heads whose effect is significant, and how many of them are among those with most attention."""
    strong = significant(panel).sort(pl.col("effect").abs(), descending=True, maintain_order=True)
    count = len(strong)
    if not count:
        return f"No effect of a head alone is significant (of {heads})."
    most = panel.sort("attention", descending=True, maintain_order=True).head(count).select("layer", "head")
    both = len(strong.join(most, on=["layer", "head"], how="inner"))
    named = [_head(row) for row in strong.head(NAMED).iter_rows(named=True)]
    first = f"The effect of {count} of {heads} is significant, the strongest (layer.head): {sentences.listed(named)}"
    if count == len(panel):
        return f"{first}."
    if count == 1:
        return f"{first}. It is {'' if both else 'not '}the head with most attention."
    return f"{first}. {both} of these {'is' if both == 1 else 'are'} among the {count} heads with most attention."


def _head(row: Row) -> str:
    effect, attention = (sentences.number(row[name]) for name in ("effect", "attention"))
    return f"{row['layer']}.{row['head']} ({effect}, attention {attention})"
