"""Table -> what each intervention does to the answer, what its control does, and what of it goes beyond the control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from attnscope.analysis.families import INTERVENTIONS
from attnscope.analysis.means import BY_DRAWS
from attnscope.analysis.run import Run
from attnscope.figures import effect_sentences, selection, sentences
from attnscope.figures.interventions import SCORES, about_score, score_of, sides_of
from attnscope.figures.kind import Look
from attnscope.figures.kinds.effect.options import EffectOptions
from attnscope.figures.kinds.effect.statistics import CONTROL, of_interventions
from attnscope.figures.kinds.heatmap import prose as maps
from attnscope.figures.prose import Document, Strong, Table, Text, document

Row = dict[str, Any]

SENTENCES = 8  # interventions or classes that are described in sentences; more are rows of a table
TITLES = {
    "layer": "Effect of each window of layers",
    "head": "Effect of each head",
    "class": "Effect of each class",
    "intervention": "What interventions do to the answer",
}


def look(run: Run, options: EffectOptions, table: pl.DataFrame) -> Look:
    score = score_of(run, options.score)
    shown = of_interventions(table)
    mark = {"layer": "band", "head": "interval (in the csv)"}.get(options.by, "bar")
    how = selection.interval_words(mark, *(shown[name] for name in ("value", "low", "high", "n")), interval=BY_DRAWS)
    minus = "" if SCORES[score].one_way else ", with the intervention minus without, in the same prompt"
    control = " Control: as much changed of something else, drawn at random or to match."
    margin = None if run.study.outcome is None or score != "logprob" else run.study.outcome.margin
    return Look(
        title=options.title or TITLES[options.by],
        y=options.y or SCORES[score].axis,
        caption=f"{SCORES[score].axis}{minus}; mean over n = "
        f"{selection.prompts_words(run, shown['n'])}; {how}. {about_score(run, score)}"
        + _left_out(run, options, shown)
        + control * bool((table["role"] == CONTROL).any())
        + (f" Margin: {margin:g}{SCORES[score].unit}." if margin is not None else "")
        + (" Layers and heads are numbered from 1." if options.number_from else ""),
        among=INTERVENTIONS,
        number_from=options.number_from,
    )


def _left_out(run: Run, options: EffectOptions, shown: pl.DataFrame) -> str:
    """How many prompts interventions can't be made in, as a sentence with a space before it."""
    every = max(len(run.prompts(side.model, side.condition)) for side in sides_of(run, options))
    least: Any = shown["n"].min()
    if least == every:
        return ""
    return f" Prompts that an intervention can't be made in are left out of its numbers (of {every} prompts)."


def write(table: pl.DataFrame, look: Look) -> Document:
    if table["head"].is_not_null().any():
        return _of_heads(table, look)
    shown = of_interventions(table)
    panels = list(dict.fromkeys(shown["panel"]))
    of_layers = shown["layer"].is_not_null().any()
    tested = pl.concat([shown["q"], shown["difference_q"]]).is_not_null().any()
    across, up = ("the first layer of the window", look.y) if of_layers else (look.y, "one row each")
    return document(
        look.title,
        {
            "Overview": [
                f"{'Lines over layers' if of_layers else 'Points with intervals'}, in "
                f"{sentences.counted(len(panels), 'panel')} ({sentences.listed(panels)}).",
                look.caption,
            ],
            "Axes": [f"Horizontal: {across or 'value'}. Vertical: {up or 'value'}. The gray line is no change."],
            "Numbers": [*statements(table), f"q is the false discovery rate {look.among}." if tested else None],
        },
    )


def _of_heads(table: pl.DataFrame, look: Look) -> Document:
    from attnscope.figures.kinds.effect.chart import cells

    return maps.write(cells(table), look)


def statements(table: pl.DataFrame) -> list[Text | Table]:
    """What a table says of each intervention or sweep, or of each class of a sweep."""
    titles = list(dict.fromkeys(of_interventions(table)["panel"]))
    words: list[Text | Table] = []
    for title in titles:
        panel = table.filter(pl.col("panel") == title)
        rows, controls = of_interventions(panel).to_dicts(), panel.filter(pl.col("role") == CONTROL).to_dicts()
        if rows[0]["head"] is not None:
            words.append((Strong(title), f": {effect_sentences.heads(rows)}"))
        elif rows[0]["layer"] is not None:
            words.append((Strong(title), f": {effect_sentences.windows(rows)}"))
        else:
            words += _each(title, rows, {row["place"]: row for row in controls}, many=len(titles) > 1)
    return words


def _each(title: str, rows: Sequence[Row], controls: dict[str, Row], *, many: bool) -> Iterator[Text | Table]:
    """A sentence for each intervention or class; many of them make a table."""
    if len(rows) > SENTENCES:
        yield effect_sentences.table(title, rows, controls)
        return
    for row in rows:
        name = f"{title}, {row['place']}" if many or row["intervention"] not in (None, row["place"]) else row["place"]
        yield (Strong(name), f": {effect_sentences.sentence(row, controls.get(row['place']))}")
