"""Table -> what each intervention does to the answer, what its control does, and what of it goes beyond the control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.families import INTERVENTIONS
from attnscope.analysis.means import BY_DRAWS
from attnscope.analysis.run import Run
from attnscope.figures import effect_sentences, selection, sentences
from attnscope.figures.interventions import SCORES, about_score, score_of, sides_of
from attnscope.figures.kind import Look
from attnscope.figures.kinds.effect.options import EffectOptions
from attnscope.figures.kinds.effect.statistics import CONTROL, INTERVENTION
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
    shown = table.filter(pl.col("role") == INTERVENTION)
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


def differs(row: Row) -> bool | None:
    """Whether an effect goes beyond its control or, without one, is there at all; None if that was not tested."""
    q = row["q"] if row["against"] is None else row["difference_q"]
    return None if q is None else bool(q < FALSE_DISCOVERIES)


def write(table: pl.DataFrame, look: Look) -> Document:
    if table["head"].is_not_null().any():
        return _of_heads(table, look)
    shown = table.filter(pl.col("role") == INTERVENTION)
    panels = list(dict.fromkeys(shown["panel"]))
    of_layers = shown["layer"].is_not_null().any()
    numbers: list[Text | Table] = []
    for title in panels:
        rows, controls = (
            table.filter(pl.col("panel") == title, pl.col("role") == role).to_dicts()
            for role in (INTERVENTION, CONTROL)
        )
        beside = {row["place"]: row for row in controls}
        numbers += _windows(title, rows) if of_layers else _each(title, rows, beside, many=len(panels) > 1)
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
            "Numbers": [*numbers, f"q is the false discovery rate {look.among}." if tested else None],
        },
    )


def _of_heads(table: pl.DataFrame, look: Look) -> Document:
    from attnscope.figures.kinds.effect.chart import cells

    return maps.write(cells(table), look)


def _each(title: str, rows: Sequence[Row], controls: dict[str, Row], *, many: bool) -> Iterator[Text | Table]:
    """A sentence for each intervention or class; many of them make a table."""
    if len(rows) > SENTENCES:
        yield effect_sentences.table(title, rows, controls)
        return
    for row in rows:
        name = f"{title}, {row['place']}" if many else row["place"]
        yield (Strong(name), f": {effect_sentences.sentence(row, controls.get(row['place']))}")


def _windows(title: str, rows: Sequence[Row]) -> Iterator[Text | Table]:
    """How many windows go beyond the control, and which one goes farthest."""
    known = [row for row in rows if differs(row) is not None]
    against = next((row["against"] for row in rows if row["against"] is not None), None)
    beyond = "the model as it is" if against is None else f'the control ("{against}")'
    many = sentences.counted(len(rows), "window")
    most = max(rows, key=lambda row: abs(row["value"]))
    peak = (
        f"The change that is farthest from 0, significant or not, is that of {most['place']}: "
        f"{sentences.with_interval(most['value'], most['low'], most['high'])} (n = {most['n']})."
    )
    if not known:
        why = effect_sentences.why_untested(most)
        yield (Strong(title), f": {many}, not tested ({why}). {peak}")
        return
    different = [row for row in known if differs(row)]
    count = f"Of {sentences.counted(len(known), 'window')} tested"
    if not different:
        few = against is None and effect_sentences.too_few(known)
        none = "there are too few prompts for one alone to be significant" if few else "none is significant"
        yield (Strong(title), f": {count} against {beyond}, {none}. {peak}")
        return
    sizes = [row["value"] if against is None else row["difference"] for row in different]
    down = sum(size < 0 for size in sizes)
    farthest = max(different, key=lambda row: abs(row["value"] if against is None else row["difference"]))
    yield (
        Strong(title),
        f": {count}, {len(different)} differ{'s' * (len(different) == 1)} significantly from {beyond}: "
        f"{len(different) - down} above and {down} below. Most: {farthest['place']}, where "
        f"{effect_sentences.sentence(farthest, None)} {peak}",
    )
