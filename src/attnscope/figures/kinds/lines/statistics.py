"""Run -> what each token receives from one head, line by line, with the head's rank among all heads."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from attnscope.analysis.columns import WITHIN
from attnscope.analysis.lines import Line, along_prompt
from attnscope.analysis.ranking import Ranking, ranked_by_distance
from attnscope.analysis.received import HeadChoice
from attnscope.analysis.run import Run
from attnscope.analysis.spread import cut_to_shares
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Column
from attnscope.figures.kinds.lines.axis import FULL, SHARED
from attnscope.figures.kinds.lines.options import LinesOptions, PanelSpec
from attnscope.figures.options import HeadSpec

COLUMNS = (
    Column("panel", pl.String, "the panel's title, such as 'Qwen2.5-7B-Math Layer 1 Head 22'; in order"),
    Column("form", pl.String, "shared (tokens all lines have) or full (the whole sequence)"),
    Column("series", pl.String, "the line's name, such as a condition's"),
    Column(
        "position",
        pl.Int64,
        "the token's position in the prompt, or from the token that lines are aligned by; within a segment, the bin",
    ),
    Column("attention", pl.Float64, "the line's height"),
    Column("low", pl.Float64, "lower end of its interval, cut at 0", optional=True),
    Column("high", pl.Float64, "upper end of its interval, cut at 1", optional=True),
    Column("n", pl.Int64, "how many prompts reach this position", optional=True),
    Column("align", pl.String, "what lines are aligned by, such as start:question", optional=True, gaps=True),
    Column("relative", pl.Float64, "within a segment: the bin's middle, from 0 to 1", optional=True, gaps=True),
    Column("lacking", pl.Int64, "how many prompts are left out, as they lack the segment", optional=True),
    Column("inserted", pl.Float64, "the share of prompts whose token at this position is inserted", optional=True),
    Column("within", pl.Float64, "what an inserted token receives, mean within prompts, then over them", optional=True),
    Column("without", pl.Float64, "what any other token receives, likewise", optional=True),
    Column("against", pl.String, "the line that this one is compared with", optional=True, gaps=True),
    Column("difference", pl.Float64, "this line minus that one, mean within prompts", optional=True, gaps=True),
    Column("difference_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("difference_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Column("q", pl.Float64, "its false discovery rate among the line's positions", optional=True, gaps=True),
    Column("rank", pl.Int64, "the head's rank by how far apart its first two lines are", optional=True),
    Column("of", pl.Int64, "how many heads were ranked", optional=True),
    Column(
        "effect",
        pl.Float64,
        "how far apart they are, mean over shared tokens and prompts, minus that of the null",
        optional=True,
    ),
    Column("typical", pl.Float64, "the median of that over all heads", optional=True),
    Column("reliability", pl.Float64, "of the ranking, split-half, from 0 to 1", optional=True),
    Column("half", pl.Float64, "the effect in the half of the prompts that heads are chosen on", optional=True),
    Column("other_half", pl.Float64, "the effect in the other half", optional=True),
    Column("null", pl.String, "the two conditions whose distance was subtracted, if any", optional=True),
    Column("over", pl.String, "mean over the queries that can see the token (visible), or over all", optional=True),
    Column("colour", pl.String, "of the line, such as '#1f77b4'", optional=True),
)
KEYS = ("panel", "form", "series", "position")


def panels(run: Run, options: LinesOptions) -> Sequence[PanelSpec]:
    """Those of the study, the heads with the largest effect, or the first head of each model."""
    if options.panels:
        return options.panels
    first = options.number_from
    if options.top is not None:
        return [
            PanelSpec(model=model, layer=layer + first, head=head + first)
            for model in options.models_of(run)
            for layer, head in _ranking(run, options, model).top(options.top)
        ]
    return [
        PanelSpec(model=model, layer=run.layers(model)[0] + first, head=run.heads(model)[0] + first)
        for model in options.models_of(run)
    ]


def table(run: Run, options: LinesOptions) -> pl.DataFrame:
    shown = panels(run, options)
    compared = len(options.conditions_of(run)) > 1
    ranks = {model: _ranking(run, options, model) for model in {panel.model for panel in shown} if compared}
    colours = _colours(run, options)
    align = options.aligned
    relative = (pl.col("position") + 0.5) / align.bins if align and align.by == WITHIN else pl.lit(None)
    parts = []
    for panel in shown:
        lines = _lines(run, options, panel)
        known = _rank_columns(None if panel.also else ranks.get(panel.model), selection.place_of(run, options, panel))
        for form in _forms(options, panel):
            parts.append(
                cut_to_shares(along_prompt(run, lines, shared=form == SHARED, align=align), "low", "high")
                .with_columns(
                    **known,
                    panel=pl.lit(panel_title(panel)),
                    form=pl.lit(form),
                    align=pl.lit(None if align is None else align.written, dtype=pl.String),
                    relative=relative.cast(pl.Float64),
                    over=pl.lit(options.over),
                    colour=pl.col("series").replace_strict(colours, default=None, return_dtype=pl.String),
                )
                .select(column.name for column in COLUMNS)
            )
    return pl.concat(parts)


def _ranking(run: Run, options: LinesOptions, model: str) -> Ranking:
    """Of a model's heads by how far apart their first two lines are."""
    one, two = options.conditions_of(run)[:2]
    return ranked_by_distance(run, model, selection.queries(run, options), options.over, one, two)


def _rank_columns(ranking: Ranking | None, place: tuple[int, int]) -> dict[str, pl.Expr]:
    """What the ranking says of a head; nothing for a panel of several heads, or where there is none."""
    rank = ranking.rank.get(place) if ranking else None
    half, other_half = ranking.halves[place] if ranking and ranking.halves and rank else (None, None)
    null = ranking.beyond if ranking else None
    return {
        "rank": pl.lit(rank, dtype=pl.Int64),
        "of": pl.lit(ranking.of if ranking and ranking.rank else None, dtype=pl.Int64),
        "effect": pl.lit(ranking.effect[place] if ranking and rank else None, dtype=pl.Float64),
        "typical": pl.lit(ranking.typical if ranking and rank else None, dtype=pl.Float64),
        "reliability": pl.lit(ranking.reliability if ranking else None, dtype=pl.Float64),
        "half": pl.lit(half, dtype=pl.Float64),
        "other_half": pl.lit(other_half, dtype=pl.Float64),
        "null": pl.lit(" and ".join(null) if null else None, dtype=pl.String),
    }


def _forms(options: LinesOptions, panel: PanelSpec) -> list[str]:
    """Lines of several models have only their shared tokens in common; a segment rarely has others within it."""
    align = options.aligned
    within = align is not None and align.by == WITHIN and options.form == "both"
    if within or any(each.model != panel.model for each in panel.also):
        return [SHARED]
    return [SHARED, FULL] if options.form == "both" else [options.form]


def _lines(run: Run, options: LinesOptions, panel: PanelSpec) -> list[Line]:
    """A line for each head of the panel under each condition."""
    names, group = options.conditions_of(run), selection.queries(run, options)
    lines = []
    for place in panel.places:
        layer, head = selection.place_of(run, options, place)
        chosen = HeadChoice(place.model, group, (layer,), (head,), options.over)
        for name in names:
            label = selection.condition_label(run, name)
            if panel.also:
                label = head_label(panel, place) + (f" / {label}" if len(names) > 1 else "")
            lines.append(Line(label, chosen, name))
    return lines


def series_of(run: Run, options: LinesOptions, panel: PanelSpec) -> list[str]:
    """The names of a panel's lines."""
    return [line.series for line in _lines(run, options, panel)]


def panel_title(panel: PanelSpec) -> str:
    """Its head, or its heads; every model of the panel by name."""
    models = list(dict.fromkeys(place.model for place in panel.places))
    numbers = {(place.layer, place.head) for place in panel.places}
    if len(numbers) == 1 and len(models) == len(panel.places):
        return f"{sentences.listed(models)} Layer {panel.layer} Head {panel.head}"
    return sentences.listed([f"{each.model} Layer {each.layer} Head {each.head}" for each in panel.places])


def head_label(panel: PanelSpec, place: HeadSpec) -> str:
    """A head among others of its panel: by its model, and by its number where that is not the same for all."""
    models, numbers = {other.model for other in panel.places}, {(other.layer, other.head) for other in panel.places}
    alone = len(models) == len(panel.places) and len(numbers) == 1
    return place.model if alone else f"{place.model} L{place.layer} H{place.head}"


def _colours(run: Run, options: LinesOptions) -> dict[str, str]:
    """By series: conditions have their own; heads of one panel that of their model, if it has one."""
    names = options.conditions_of(run)
    colours = selection.condition_colours(run, names)
    if len(names) == 1:
        for panel in panels(run, options):
            for place in panel.places if panel.also else ():
                colour = selection.model_colour(run, place.model)
                if colour is not None:
                    colours[head_label(panel, place)] = colour
    return colours
