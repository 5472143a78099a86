"""Run -> one number per layer and head: a measure, or its change between two sides, tested head by head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.compared import class_with_change, family, level_as_difference
from attnscope.analysis.comparisons import Comparison, placebo_for
from attnscope.analysis.comparisons import Kind as ComparisonKind
from attnscope.analysis.discoveries import discoveries
from attnscope.analysis.effects import Effects, effects
from attnscope.analysis.families import ALL_HEADS, HEADS_AND_CLASSES
from attnscope.analysis.matching import Matching, matched
from attnscope.analysis.means import null_of
from attnscope.analysis.measures import MeasureValues, measure_values
from attnscope.analysis.one_way import measure_by_edits_alone
from attnscope.analysis.ranges import bounds_shown
from attnscope.analysis.run import Run
from attnscope.analysis.sides import ENRICHMENT, EVERY, MASS, Side
from attnscope.analysis.spread import cut_to_differences, mean_of_seen
from attnscope.analysis.values import quantities
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Column
from attnscope.figures.kinds.heatmap.options import HeatmapOptions
from attnscope.measures.names import OF_INSERTIONS

Floats = NDArray[np.float64]

COLUMNS = (
    Column("panel", pl.String, "the panel's title; in order"),
    Column("layer", pl.Int64, "across"),
    Column("head", pl.Int64, "down"),
    Column("value", pl.Float64, "the cell's colour"),
    Column("low", pl.Float64, "lower end of its interval, if it is tested", optional=True, gaps=True),
    Column("high", pl.Float64, "upper end of its interval, if it is tested", optional=True, gaps=True),
    Column(
        "q",
        pl.Float64,
        "of a change, or a quantity tested against 0: its false discovery rate among the panel's heads, of what is a "
        "change of a class among those of all classes",
        optional=True,
        gaps=True,
    ),
    Column("floor", pl.Float64, "of a change: what rounding alone could cause", optional=True, gaps=True),
    Column("same_q", pl.Float64, "of the test that a change is within the study's margin", optional=True, gaps=True),
    Column("least_q", pl.Float64, "the smallest q that one head alone can have", optional=True, gaps=True),
    Column("n", pl.Int64, "how many prompts", optional=True),
    Column("row", pl.Int64, "the cell's row, if heads are sorted: 1 is the layer's strongest", optional=True),
)
KEYS = ("panel", "layer", "head")
NUMBERS = ("layer", "head", "value", "low", "high", "q", "floor", "same_q", "least_q", "n")


@dataclass(frozen=True)
class Panel:
    """One map: a side, or the change from another side to it."""

    title: str
    side: Side
    base: Side | None = None
    """What is subtracted, if a difference is shown."""


def table(run: Run, options: HeatmapOptions) -> pl.DataFrame:
    cells = pl.concat([_cells(run, options, panel) for panel in panels(run, options)])
    if not len(cells):
        raise AttnscopeError(
            f"no prompt can show {sentences.listed(shown_measures(run, options))}",
            where=f"figure {options.name}: measure",
            allowed="measures that some prompt has, and classes that some token belongs to",
            todo="choose another",
        )
    first = options.number_from
    cells = cells.with_columns(pl.col("layer") + first, pl.col("head") + first, row=pl.lit(None, dtype=pl.Int64))
    if options.sort == "effect":
        strongest = pl.col("value").abs().rank("ordinal", descending=True).over("panel", "layer")
        cells = cells.with_columns(row=strongest.cast(pl.Int64))
    return cells.select(column.name for column in COLUMNS)


def shown_measures(run: Run, options: HeatmapOptions) -> list[str]:
    return options.measures or selection.named_classes(run)[:1]


def panels(run: Run, options: HeatmapOptions) -> list[Panel]:
    labels, names = options.models_of(run), options.conditions_of(run)
    if options.difference is None:
        sides = [Side(run, model, name) for model in labels for name in names]
        if shown_measures(run, options)[0] in OF_INSERTIONS:  # the base prompt has nothing to show
            sides = [side for side in sides if side.inserts] or sides
        quantity = run.study.quantities.get(shown_measures(run, options)[0])
        if quantity is not None:  # one that is relative to a condition is nothing under it
            against = {name for _, name in quantity.conditions}
            sides = [side for side in sides if side.condition not in against] or sides
        return [Panel(selection.title(run, options, side.model, side.condition), side) for side in sides]
    one, two = options.difference
    if one in run.conditions:
        title = f"{selection.condition_label(run, two)} minus {selection.condition_label(run, one)}"
        return [panel for model in labels for panel in _beside_placebo(run, model, one, two, title, len(labels) > 1)]
    ends = {name: f", {selection.condition_label(run, name)}" if len(names) > 1 else "" for name in names}
    return [Panel(f"{two} minus {one}{ends[name]}", Side(run, two, name), Side(run, one, name)) for name in names]


def _beside_placebo(run: Run, model: str, one: str, two: str, title: str, many: bool) -> Iterator[Panel]:
    """A difference of conditions, and beside it what a control's second draw differs by."""
    start = f"{model}: " if many else ""
    shown = Comparison("condition", Side(run, model, one), Side(run, model, two))
    yield Panel(f"{start}{title}", shown.two, shown.one)
    null = placebo_for(shown)
    if null is not None and {null.one.condition, null.two.condition} != {one, two}:
        drawn = selection.condition_label(run, null.one.condition)
        yield Panel(f"{start}placebo: {drawn}, drawn twice", null.two, null.one)


def tested_with(run: Run, options: HeatmapOptions) -> str:
    """What q is the false discovery rate of, in words."""
    names, queries = shown_measures(run, options), selection.queries(run, options)
    if options.difference is not None and set(names) <= set(run.token_sets):
        return HEADS_AND_CLASSES
    for panel in panels(run, options):
        if panel.base is None:
            is_class = level_as_difference(panel.side, queries, names[0]) is not None
        else:
            after, before = _measured(options, panel.side), _measured(options, panel.base)
            prompts = np.intersect1d(after.prompts, before.prompts)
            change = _change(after, before, matched(panel.base, panel.side))
            is_class = class_with_change(_comparison(panel.side, panel.base), queries, prompts, change) is not None
        if is_class:
            return HEADS_AND_CLASSES
    return ALL_HEADS


def _cells(run: Run, options: HeatmapOptions, panel: Panel) -> pl.DataFrame:
    if panel.base is None:
        cells, model = _means(options, panel.side), panel.side.model
    else:
        compared = _compared(run, options, panel.side, panel.base)
        cells = _differences(run, options, panel.title, panel.side, panel.base) if compared is None else compared
        model = panel.base.model
    return cells.filter(
        pl.col("layer").is_in(selection.layers(run, options, model)),
        pl.col("head").is_in(selection.heads(run, options, model)),
        pl.col("value").is_not_null(),
    ).with_columns(panel=pl.lit(panel.title))


def _means(options: HeatmapOptions, side: Side) -> pl.DataFrame:
    numbers = _measured(options, side)
    layers, heads = (each.ravel() for each in np.meshgrid(*_axes(side), indexing="ij"))
    flat = numbers.values.reshape(len(numbers.values), -1)
    cells = pl.DataFrame(
        {"layer": layers, "head": heads, "value": mean_of_seen(flat, 0), "n": (~np.isnan(flat)).sum(0)},
        schema_overrides={"n": pl.Int64},
    )
    tests: dict[str, pl.Expr | pl.Series] = {
        name: pl.lit(None, dtype=pl.Float64) for name in ("low", "high", "q", "floor", "same_q", "least_q")
    }
    run, names = side.run, shown_measures(side.run, options)
    null = None if _is_nothing(side, names) else null_of(run, names)
    paired = None if null is None else level_as_difference(side, selection.queries(run, options), names[0])
    if paired is not None:
        return paired[0].with_columns(value="difference", least_q=_least(paired[1])).select(NUMBERS)
    if null is not None:
        effect = effects(flat - null, clusters=run.clusters(numbers.prompts), seed=run.study.seed)
        bounds = bounds_shown(run, names, enrichment=False)
        low, high = (np.clip(each + null, *bounds) for each in (effect.low, effect.high))
        tested = {"low": low, "high": high, "q": effect.q, "least_q": least_q(effect)}
        tests |= {name: pl.Series(values).fill_nan(None) for name, values in tested.items()}
    return cells.with_columns(pl.col("value").fill_nan(None), **tests).select(NUMBERS)


def _is_nothing(side: Side, names: Sequence[str]) -> bool:
    """Whether what is shown is 0 by construction: it is relative to the condition itself."""
    quantity = side.run.study.quantities.get(names[0])
    return quantity is not None and side.condition in {name for _, name in quantity.conditions}


def _least(overall: Mapping[str, Any]) -> pl.Expr:
    """The smallest q that each head alone can have. overall: the row of their mean in the comparison."""
    alone = (pl.col("smallest_p") * overall["tested"]).clip(upper_bound=1.0)
    return pl.when(pl.col("q").is_not_null()).then(alone)


def _compared(run: Run, options: HeatmapOptions, side: Side, base: Side) -> pl.DataFrame | None:
    """The rows of the comparison of two sides, where what is shown is one of its quantities; None for others."""
    queries, names = selection.queries(run, options), shown_measures(run, options)
    quantity = names[0]
    if len(names) == 1 and names[0] in run.token_sets:
        quantity = ENRICHMENT if options.value == "enrichment" else MASS
    if len(names) > 1 or (queries, quantity) not in quantities(run):
        return None
    tested = family(_comparison(side, base), queries, quantity)
    if tested is None:
        return None
    heads = tested[0].filter(pl.col("token_class").is_in([names[0], EVERY]), pl.col("n") > 0)
    least = _least(tested[1].row(0, named=True))
    return heads.with_columns(value="difference", least_q=least).select(NUMBERS) if len(heads) else None


def _comparison(side: Side, base: Side) -> Comparison:
    kind: ComparisonKind = "condition" if side.model == base.model else "model"
    return Comparison(kind, base, side)


def _of_class(side: Side, base: Side, queries: str, prompts: NDArray[np.int64], change: Floats) -> pl.DataFrame | None:
    """The rows of the class whose mass changes just so; None if there is none."""
    comparison = _comparison(side, base)
    name = class_with_change(comparison, queries, prompts, change)
    tested = None if name is None else family(comparison, queries, MASS)
    if tested is None:
        return None
    heads = tested[0].filter(pl.col("token_class") == name)
    return heads.with_columns(value="difference", least_q=_least(tested[1].row(0, named=True))).select(NUMBERS)


def _differences(run: Run, options: HeatmapOptions, title: str, side: Side, base: Side) -> pl.DataFrame:
    """Of a score, or of the sum of several classes."""
    after, before, matching = _measured(options, side), _measured(options, base), matched(base, side)
    change = _change(after, before, matching)
    if not len(change):
        raise AttnscopeError(
            "there is no prompt to show", where=title, allowed="prompts that both sides have", todo="choose others"
        )
    prompts = np.intersect1d(after.prompts, before.prompts)
    known = _of_class(side, base, selection.queries(run, options), prompts, change)
    if known is not None:
        return known
    whole = _among_classes(change, prompts, options, side, base, matching)
    mine = slice(0, change.shape[1])
    effect = Effects(**{name: values[mine] for name, values in vars(whole).items()})
    least = least_q(whole)[mine]
    bounds = bounds_shown(run, shown_measures(run, options), enrichment=options.value == "enrichment")
    low, high = cut_to_differences(effect.low, effect.high, bounds)
    layers, heads = (np.asarray(each)[place] for each, place in zip(_axes(base), matching.one, strict=True))
    untested = _certain(options, side, base, after, before)
    cells = pl.DataFrame(
        {
            "layer": layers,
            "head": heads,
            "value": effect.mean,
            "low": low,
            "high": high,
            "q": np.full(len(layers), np.nan) if untested else effect.q,
            "same_q": np.full(len(layers), np.nan) if untested else effect.same,
            "least_q": np.full(len(layers), np.nan) if untested else least,
            "floor": _floor(side, after, matching.two, options) + _floor(base, before, matching.one, options),
            "n": effect.n,
        }
    )
    return cells.with_columns(pl.col("value", "low", "high", "q", "floor", "same_q", "least_q").fill_nan(None)).select(
        NUMBERS
    )


def _certain(options: HeatmapOptions, side: Side, base: Side, after: MeasureValues, before: MeasureValues) -> bool:
    """Whether a change follows from the edits alone, or one side has none of it."""
    names = shown_measures(side.run, options)
    quantity = ENRICHMENT if options.value == "enrichment" else MASS
    by_edits = measure_by_edits_alone(base, side, selection.queries(side.run, options), names, quantity)
    if by_edits or not set(names) <= set(side.run.token_sets):
        return by_edits
    return not all(np.nan_to_num(each.values).any() for each in (after, before))


def _change(after: MeasureValues, before: MeasureValues, matching: Matching) -> Floats:
    """(prompts that both have, pairs of heads)."""
    _, mine, theirs = np.intersect1d(after.prompts, before.prompts, return_indices=True)
    change: Floats = after.values[mine][:, *matching.two] - before.values[theirs][:, *matching.one]
    return change


def _among_classes(
    change: Floats,
    prompts: NDArray[np.int64],
    options: HeatmapOptions,
    side: Side,
    base: Side,
    matching: Matching,
) -> Effects:
    """A map's changes (prompts, heads) and, after them, those of the other classes they are tested with.

    `same` is q here.
    """
    run, pairs, names = side.run, change.shape[1], shown_measures(side.run, options)
    margin = run.study.margin if options.value == "mass" and set(names) <= {*run.token_sets, *OF_INSERTIONS} else None
    tested = [change]
    for other in run.token_sets if set(names) <= set(run.token_sets) else ():
        if [other] != names:
            alone = options.model_copy(update={"measure": other})
            after, before = _measured(alone, side), _measured(alone, base)
            if not _certain(alone, side, base, after, before):
                tested.append(_change(after, before, matching))
    pools = np.repeat(np.arange(len(tested)), pairs).tolist()
    clusters = run.clusters(prompts)
    whole = effects(np.concatenate(tested, 1), clusters=clusters, pools=pools, seed=run.study.seed, margin=margin)
    return replace(whole, same=discoveries(whole.same))


def least_q(effect: Effects) -> Floats:
    """The smallest q that each column alone can have among those tested; NaN where nothing is tested."""
    tested = ~np.isnan(effect.p)
    return np.where(tested, np.minimum(1.0, effect.smallest * tested.sum()), np.nan)


def _measured(options: HeatmapOptions, side: Side) -> MeasureValues:
    names, queries = shown_measures(side.run, options), selection.queries(side.run, options)
    where = f"figure {options.name}: measure"
    return measure_values(side, queries, names, enrichment=options.value == "enrichment", where=where)


def _axes(side: Side) -> tuple[list[int], list[int]]:
    return side.run.layers(side.model), side.run.heads(side.model)


def _floor(side: Side, numbers: MeasureValues, places: tuple[Any, Any], options: HeatmapOptions) -> Any:
    noise = side.run.noise(side.model, selection.queries(side.run, options))
    return np.nan if noise is None or numbers.per_mass is None else (noise * numbers.per_mass)[places]
