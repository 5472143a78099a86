"""Which of a run's models, conditions, layers, heads and classes a figure shows, their labels and their colours.

Figures may number layers and heads from 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from attnscope.analysis.means import BY_T
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Masses, masses
from attnscope.analysis.spread import CUT, extent, is_cut, mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import sentences
from attnscope.figures.kind import Look
from attnscope.figures.options import ClassOptions, HeadOptions, HeadSpec, Options
from attnscope.measures.names import title_of as measure_title
from attnscope.study.independence import FEWEST
from attnscope.study.schema import COLOUR, DepthsSpec, layer_at
from attnscope.text.classes import OTHER, REMOVED
from attnscope.text.groups import group_words as group_words

# Neighbours differ in lightness, so that parts of a bar can be distinguished in gray and by colour-blind readers.
# None is gray: that means not significant.
PALETTE = (
    *("#b2182b", "#4393c3", "#fdb863", "#173f5f", "#f4b6c8", "#8073ac", "#a6dba0", "#7f3b08"),
    *("#d4c91a", "#00796b", "#d01c8b", "#f16913", "#4a148c", "#5fd3e0"),
)
LAYOUTS = {"chat": "in the chat template", "plain": "as plain text"}
OTHERS = "#fbeebc"  # of the class `other`: pale, and not gray either
LINES = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf"),
    *("#e6308a", "#bcbd22", "#7b0828", "#1a1a8c", "#ffb37f", "#00573f", "#f7a6d8", "#d62728"),
)
ALIKE = 60  # by `_apart`: colours that are closer can be taken for each other


def refuse_missing(run: Run, options: Options) -> None:
    """A model may have no prompt under a condition: all were dropped, or none is measured yet."""
    labels, names = options.sides(run)
    for label in labels:
        for name in names:
            if not run.has(label, name):
                measured = [each for each in run.conditions if run.has(label, each)]
                raise AttnscopeError(
                    f"{label} has no prompt under {name}",
                    where=f"figure {options.name}",
                    allowed=f"conditions of {label}: {', '.join(measured)}",
                    todo="choose one of these, or wait if the run is still being measured",
                )


def layout_words(run: Run, options: Options) -> str:
    """How the models shown got their prompts, as a sentence with a space before it; empty if the run doesn't say."""
    words = laid_out([(label, run.layout(label)) for label in options.sides(run)[0]])
    return f" {words}." if words else ""


def removed_words(run: Run, options: Options) -> str:
    """Which tokens the study leaves out, and how much they receive, as a sentence with a space before it."""
    if not run.study.without or not options.shows_attention:
        return ""
    models, conditions = options.sides(run)
    shares = [_removed_share(run, options, *side) for side in product(models, conditions) if run.has(*side)]
    known = [share for share in shares if not np.isnan(share)]
    amount = f" get {sentences.range_of_shares(min(known), max(known))} of it" if known else " get none of it"
    over = "" if isinstance(options, HeadOptions) else ", mean over all layers and heads"
    return f" Shares are of the attention that does not go to {removed_tokens_words(run)}, which{amount}{over}."


def _removed_share(run: Run, options: Options, model: str, condition: str) -> float:
    """What the tokens that are left out receive: mean over the queries, layers and heads that a figure shows."""
    title = series(run, options)
    groups = [queries(run, options)] if title is None else [group.name for group in run.series[title]]
    values = [masses(run, model, condition, group).of([REMOVED])[0] for group in groups]
    if isinstance(options, HeadOptions):
        rows = [run.layers(model).index(each) for each in layers(run, options, model)]
        columns = [run.heads(model).index(each) for each in heads(run, options, model)]
        values = [each[:, rows][:, :, columns] for each in values]
    return float(mean_of_seen(np.stack(values), (0, 1, 2, 3)))


def removed_tokens_words(run: Run) -> str:
    """The tokens that a study leaves out."""
    words = {"special": "special tokens", "first": "the first token"}
    return sentences.listed([words.get(each, each) for each in run.study.without])


def laid_out(layouts: Sequence[tuple[str, str | None]]) -> str:
    """How each of several got its prompts: (name, layout), a layout of None being unknown. Empty if all are."""
    by_layout: dict[str, list[str]] = {}
    for name, layout in layouts:
        if layout is not None:
            by_layout.setdefault(LAYOUTS[layout], []).append(name)
    if len(by_layout) == 1:
        return f"Prompts {next(iter(by_layout))}"
    parts = [f"{words} for {sentences.listed(names)}" for words, names in by_layout.items()]
    return f"Prompts {', '.join(parts)}" if parts else ""


def prompts_words(run: Run, n: pl.Series) -> str:
    """How many prompts numbers are over, and how many clusters, where prompts of one are not independent."""
    least, most = extent(n)
    clusters, every = len(set(run.cluster_of.values())), len(run.cluster_of)
    if clusters == every:
        return sentences.range_of(least, most, "prompt")
    up_to = "" if least == every else "up to "
    return f"{sentences.range_of(least, most, 'prompt')} in {up_to}{sentences.counted(clusters, 'cluster')}"


def whose_words(run: Run, group: str, measure: str) -> str:
    """The queries that a measure is taken from; a quantity made from a series is not about one query group."""
    quantity = run.study.quantities.get(measure)
    titles = [] if quantity is None else [f'"{title}"' for _, title in quantity.series]
    return f"all groups of {sentences.listed(titles)}" if titles else group_words(group)


def few_clusters(run: Run) -> int | None:
    """How many clusters a run's prompts are in, if these are too few for any test."""
    clusters = len(set(run.cluster_of.values()))
    return clusters if clusters < FEWEST else None


def interval_words(
    mark: str, mean: pl.Series, low: pl.Series, high: pl.Series, n: pl.Series, *, interval: str = BY_T
) -> str:
    """What a band or whisker shows, or why there is none. mark: what it is called; n: how many prompts each is over."""
    if low.is_not_null().any():
        some = f" (none below {FEWEST} prompts or clusters)" if low.is_null().any() else ""
        return f"{mark}: {interval}{CUT if is_cut(mean, low, high) else ''}{some}"
    if extent(n)[1] <= 1:
        return "one prompt, so no interval"
    if extent(n)[1] < FEWEST:
        return f"no interval, as there are fewer than {FEWEST} prompts"
    return "no interval, as there are too few clusters of prompts, or a few have most of them"


def lacking_words(run: Run, options: Options, names: Sequence[str], n: pl.Series, *, summed: bool = False) -> str:
    """Which of the classes shown some prompts lack, as a sentence with a space before it; empty if none does.

    n: how many prompts each number is over. summed: the classes are added up.
    """
    models, conditions = options.sides(run)
    title = series(run, options)
    groups = [queries(run, options)] if title is None else [group.name for group in run.series[title]]
    sides = [[masses(run, *side, each) for each in groups] for side in product(models, conditions) if run.has(*side)]
    if not set(names) <= set(run.token_sets):
        every = max(len(side[0].prompts) for side in sides)
        most = extent(n)[1]
        return f" Prompts without a value are left out: {most:.0f} of {every} have one." if most < every else ""
    some = []
    for name in names:
        counts_of = [_having(side, name) for side in sides]
        counts_of = [each for each in counts_of if each[0]]  # some edits leave none of it
        have, every_of = ([each[place] for each in counts_of] for place in (0, 1))
        if have != every_of:
            counts = f"{min(have)}" if min(have) == max(have) else f"{min(have)} to {max(have)}"
            whole = sentences.range_of(min(every_of), max(every_of), "prompt")
            some.append(f"{counts} of {whole} {'has' if max(every_of) == 1 else 'have'} {class_label(run, name)}")
    if not some:
        return ""
    how = "A class that a prompt lacks counts as 0" if summed else "Prompts without a class are left out of its mean"
    return f" {how}: {sentences.listed(some)}."


def _having(of_groups: Sequence[Masses], name: str) -> tuple[int, int]:
    """How many prompts of a side have a class in some of the query groups, and how many prompts there are."""
    having = np.stack([(~np.isnan(each.of([name])[0])).any((1, 2)) for each in of_groups])
    return int(having.any(0).sum()), having.shape[1]


def models(run: Run, options: Options) -> list[str]:
    return options.models_of(run)


def conditions(run: Run, options: Options) -> list[str]:
    return options.conditions_of(run)


def queries(run: Run, options: Options) -> str:
    return options.queries or run.queries[0]


def series(run: Run, options: Options) -> str | None:
    """The series of query groups that a figure shows: the one it names, or the first, if there is no training."""
    if options.queries in run.series:
        return options.queries
    return next(iter(run.series), None) if options.takes_series and not run.families else None


def classes(run: Run, options: ClassOptions) -> list[str]:
    """`other` is left out unless asked for: it is what the study has no name for."""
    return options.classes or named_classes(run)


def named_classes(run: Run) -> list[str]:
    return [name for name in run.classes if name != OTHER] or [OTHER]


def layers(run: Run, options: HeadOptions, model: str) -> list[int]:
    """Numbered from 0, among those measured."""
    measured = run.layers(model)
    if options.layers == "all":
        return measured
    if isinstance(options.layers, DepthsSpec):
        wanted = [layer_at(depth, run.depth(model)) for depth in options.layers.depths]
    else:
        wanted = [layer - options.number_from for layer in options.layers]
    return _measured("layer", wanted, measured, model, options)


def heads(run: Run, options: HeadOptions, model: str) -> list[int]:
    measured = run.heads(model)
    if isinstance(options.heads, str):
        return measured
    return _measured("head", [head - options.number_from for head in options.heads], measured, model, options)


def heads_words(run: Run, options: HeadOptions) -> str:
    """Which heads a mean is over."""
    if not isinstance(options.heads, str):
        numbers = options.heads
    elif run.study.measure.heads == "all":
        return "all heads"
    else:
        numbers = [head + options.number_from for head in run.study.measure.heads]
    return f"head{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def layers_words(run: Run, options: HeadOptions, shown: Sequence[str]) -> str:
    """Which layers a mean is over, if the models shown have the same."""
    chosen = {tuple(layers(run, options, model)) for model in shown}
    if len(chosen) > 1 or set(chosen) == {tuple(range(run.depth(model))) for model in shown}:
        return "all layers" if options.layers == "all" else "the layers chosen"
    (numbers,) = chosen
    return f"layer{'s' * (len(numbers) > 1)} {', '.join(str(each + options.number_from) for each in numbers)}"


def condition_label(run: Run, name: str) -> str:
    return run.study.condition(name).label or name


def model_colour(run: Run, label: str) -> str | None:
    return next(model.colour for model in run.study.models if model.label == label)


def title(run: Run, options: Options, model: str, condition: str) -> str:
    """Title of a panel that shows one model under one condition: what distinguishes it from the others."""
    label = condition_label(run, condition)
    if len(conditions(run, options)) == 1:
        return model
    return label if len(models(run, options)) == 1 else f"{model} / {label}"


def class_label(run: Run, name: str) -> str:
    if name in run.study.quantities:
        return (run.study.quantities[name].label or name) + _reduced(run, name)
    others = [own_label(run, each) for each in run.manifest.overlaps.get(name, ())]
    label = own_label(run, name)
    return f"{label}, without {sentences.listed(others)}" if others else label


def own_label(run: Run, name: str) -> str:
    """The label that the study gives a class or set, or its name."""
    specs = {**run.study.also, **run.study.classes}
    return (specs[name].label if name in specs else None) or name


def measure_words(run: Run, name: str) -> str | None:
    """A measure or quantity in a few words, for axes; None for classes."""
    quantity = run.study.quantities.get(name)
    return measure_title(name) if quantity is None else (quantity.label or quantity.title) + _reduced(run, name)


def _reduced(run: Run, name: str) -> str:
    """Of a quantity: which of its classes lost tokens to earlier ones, in parentheses; empty if none did."""
    named = dict.fromkeys(each for _, each in run.study.quantities[name].token_sets)
    labels = [class_label(run, each) for each in named if run.manifest.overlaps.get(each)]
    return f" ({sentences.listed(labels)})" if labels else ""


def condition_colours(run: Run, names: Sequence[str]) -> dict[str, str]:
    """By label; those without a colour get one that no other was given."""
    return told_apart({condition_label(run, name): run.study.condition(name).colour for name in names}, LINES)


def colours_of(table: pl.DataFrame, column: str, palette: Sequence[str]) -> dict[str, str]:
    """The colours that a table gives to the values of a column; from the palette where it gives none."""
    given = table.filter(pl.col("colour").str.contains(COLOUR)).unique(column, keep="first", maintain_order=True)
    known = dict(given.select(column, "colour").iter_rows())
    return told_apart({name: known.get(name) for name in dict.fromkeys(table[column])}, palette)


def class_colours(run: Run, names: Sequence[str]) -> dict[str, str]:
    """By label; `other` is pale."""
    specs = {**run.study.also, **run.study.classes}
    given = {name: specs[name].colour if name in specs else None for name in names}
    return told_apart(
        {class_label(run, name): given[name] or (OTHERS if name == OTHER else None) for name in names}, PALETTE
    )


def told_apart(given: Mapping[str, str | None], palette: Sequence[str]) -> dict[str, str]:
    """A colour for each name: the given one, else that of its place in the palette, or the next that looks different.

    Where there are more names than colours, they repeat.
    """
    taken = [colour for colour in given.values() if colour is not None]
    colours = {}
    for place, (name, own) in enumerate(given.items()):
        first = place % len(palette)
        order = (*palette[first:], *palette[:first])
        free = (each for each in order if all(_apart(each, other) >= ALIKE for other in taken))
        colours[name] = own or next(free, order[0])
        taken += [] if own else [colours[name]]
    return colours


def _apart(one: str, other: str) -> float:
    """How far apart two colours are, about as the eye sees it, 0 to 765: weighted by the mean of the reds."""
    (red, *_), (other_red, *_) = sides = [_channels(each) for each in (one, other)]
    warm = (red + other_red) / 512
    weights = (2 + warm, 4, 3 - warm)
    return math.sqrt(sum(weight * (a - b) ** 2 for weight, a, b in zip(weights, *sides, strict=True)))


def _channels(colour: str) -> tuple[int, int, int]:
    """`#1f77b4` or `#17b` -> red, green and blue, 0 to 255."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)


def title_of(look: Look, legend: str = "", wide: int = 100) -> Any:
    """The figure's title and caption above it; nothing on a screen, which shows them itself."""
    if look.room is not None:
        return alt.Undefined
    return alt.Title(look.title, subtitle=sentences.wrapped(look.caption + legend, wide), anchor="start")


def place_of(run: Run, options: Options, head: HeadSpec) -> tuple[int, int]:
    """A head's layer and number, from 0."""
    first = options.number_from
    layers = _measured("layer", [head.layer - first], run.layers(head.model), head.model, options)
    return layers[0], _measured("head", [head.head - first], run.heads(head.model), head.model, options)[0]


def _measured(what: str, wanted: Sequence[int], measured: Sequence[int], model: str, options: Options) -> list[int]:
    for number in wanted:
        if number not in measured:
            raise AttnscopeError(
                f"{what} {number + options.number_from} of {model} was not measured",
                where=f"figure {options.name}",
                allowed=f"{what}s {', '.join(str(each + options.number_from) for each in measured)}",
                todo="measure it, or choose another",
            )
    return list(dict.fromkeys(wanted))
