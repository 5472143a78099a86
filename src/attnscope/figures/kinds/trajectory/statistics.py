"""Run -> a measure along an axis, mean over prompts: the steps of a training, or the query groups of a series.

Along a training, every step is compared with the first. Along a series of query groups, every condition is compared
with the first one at the same place. The first condition's own course is only tested for quantities that are ratios:
later queries see more tokens, so that the share of any class changes along the series whatever a head does.

A line is tested together with the same line of every other class and set, shown or not. So a difference has the same q
in every figure of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import polars as pl

from attnscope.analysis.means import null_of
from attnscope.analysis.measures import measure_values
from attnscope.analysis.one_way import measure_by_edits_alone
from attnscope.analysis.ranges import bounds_shown
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.analysis.spread import mean_of_seen
from attnscope.analysis.trajectories import Point, Reference, trajectories
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.kind import Column
from attnscope.figures.kinds.trajectory.options import TrajectoryOptions
from attnscope.measures.names import title_of

COLUMNS = (
    Column("panel", pl.String, "the panel's title, such as a class; in order"),
    Column("series", pl.String, "the line's name, such as a training's"),
    Column("x", pl.Float64, "the place on the horizontal axis, such as the step"),
    Column("at", pl.String, "that place in words, such as 'step 200'", optional=True),
    Column("axis", pl.String, "the title of the horizontal axis, such as 'training step'", optional=True),
    Column("value", pl.Float64, "the line's height: mean over layers and heads, then over prompts"),
    Column("low", pl.Float64, "lower end of its interval, of a share cut at 0", optional=True, gaps=True),
    Column("high", pl.Float64, "upper end of its interval, of a share cut at 1", optional=True, gaps=True),
    Column("n", pl.Int64, "how many prompts", optional=True),
    Column("against", pl.String, "the first place of the line, to compare with", optional=True, gaps=True),
    Column("difference", pl.Float64, "the value minus that one's, mean within prompts", optional=True, gaps=True),
    Column("difference_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("difference_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Column(
        "q",
        pl.Float64,
        "its false discovery rate among all places of the line, of a class with those of the other classes",
        optional=True,
        gaps=True,
    ),
    Column("floor", pl.Float64, "the difference that rounding alone could cause", optional=True, gaps=True),
    Column("colour", pl.String, "of the line, such as '#1f77b4'", optional=True, gaps=True),
)
KEYS = ("panel", "series", "x")
HIDDEN = "\0"
"""How the panels begin that are not shown: their lines are only tested together with those that are."""


@dataclass(frozen=True)
class Place:
    """A place on the horizontal axis, and what is measured there."""

    x: float
    at: str
    """In words."""
    side: Side
    queries: str


@dataclass(frozen=True)
class Track:
    """The places that one line goes through, in order."""

    label: str
    """What distinguishes it from other tracks of the figure."""
    places: Sequence[Place]
    colour: str | None = None


@dataclass(frozen=True)
class Axis:
    """The horizontal axis: its title, and the tracks along it."""

    title: str
    tracks: Sequence[Track]
    across: bool = False
    """Whether tracks are compared with the first one, place by place, instead of each with its own first place."""


def steps(run: Run, options: TrajectoryOptions) -> Axis:
    """Along the steps of each training, under each condition."""
    chosen, names = options.models_of(run), options.conditions_of(run)
    families = {name: [each for each in labels if each in chosen] for name, labels in run.families.items()}
    families = {name: labels for name, labels in families.items() if labels}
    colours, queries = selection.condition_colours(run, names), selection.queries(run, options)
    tracks = []
    for family, labels in families.items():
        for name in names:
            words = selection.condition_label(run, name)
            label = f"{family} / {words}" if len(families) > 1 and len(names) > 1 else family
            colour = selection.model_colour(run, labels[0])
            if len(families) == 1 and len(names) > 1:
                label, colour = words, colours[words]
            specs = [run.study.model(each) for each in labels if run.has(each, name)]
            places = [
                Place(float(spec.step or 0), f"step {spec.step}", Side(run, spec.label, name), queries)
                for spec in specs
            ]
            tracks.append(Track(label, places, colour if len(families) == 1 or len(names) == 1 else None))
    return Axis("training step", tracks)


def groups(run: Run, options: TrajectoryOptions, series: str) -> Axis:
    """Along the query groups of a series, for each model under each condition."""
    labels, names = options.models_of(run), options.conditions_of(run)
    colours = selection.condition_colours(run, names)
    tracks = []
    for label in labels:
        for name in names:
            words = selection.condition_label(run, name)
            places = [
                Place(float(group.number or 0), group.name, Side(run, label, name), group.name)
                for group in run.series[series]
            ]
            if len(labels) == 1:
                tracks.append(Track(words, places, colours[words]))
            else:
                title = f"{label} / {words}" if len(names) > 1 else label
                tracks.append(Track(title, places, selection.model_colour(run, label) if len(names) == 1 else None))
    return Axis(series, tracks, across=True)


def axis_of(run: Run, options: TrajectoryOptions) -> Axis:
    series = selection.series(run, options)
    return steps(run, options) if series is None else groups(run, options, series)


def table(run: Run, options: TrajectoryOptions) -> pl.DataFrame:
    axis = axis_of(run, options)
    lines = list(_lines(run, options, axis))
    numbers = trajectories([point for line in lines for point in line.points], run.clusters, seed=run.study.seed)
    numbers = numbers.filter(~pl.col("panel").str.starts_with(HIDDEN))
    if not len(numbers):
        raise AttnscopeError(
            "no prompt can show this",
            where=f"figure {options.name}",
            allowed="measures that some prompt has",
            todo="choose another measure",
        )
    colours = {line.series: line.colour for line in lines if line.shown}
    colour = pl.col("series").replace_strict(colours, default=None, return_dtype=pl.String)
    return numbers.with_columns(axis=pl.lit(axis.title), colour=colour).select(column.name for column in COLUMNS)


_Named = tuple[str, str]
"""A line's panel and series."""


@dataclass(frozen=True)
class _Line:
    series: str
    colour: str | None
    points: list[Point]
    shown: bool = True


def _lines(run: Run, options: TrajectoryOptions, axis: Axis) -> Iterator[_Line]:
    """A line per measure and track, panel by panel; then those that are tested together with them."""
    measures = [options.measures] if options.measures else [[name] for name in selection.classes(run, options)]
    colours = _class_colours(run, measures)
    of_classes = (options.lines or ("classes" if len(axis.tracks) == 1 else "models")) == "classes"
    layers = _layers(run, options)
    for layer in layers:
        for track, names in (
            [(track, names) for track in axis.tracks for names in measures]
            if of_classes
            else [(track, names) for names in measures for track in axis.tracks]
        ):
            several = len(axis.tracks) > 1 if of_classes else len(measures) > 1
            mine, first = (
                _named(run, options, each, names, layer, of_classes, several) for each in (track, axis.tracks[0])
            )
            points = _points(run, options, axis, track, names, layer, (mine, first))
            yield _Line(mine[1], colours[names[0]] if of_classes else track.colour, points)
    if not all(set(names) <= set(run.token_sets) for names in measures):
        return
    hidden = [[name] for name in run.token_sets if [name] not in measures]
    for layer, names, track in product(layers, hidden, axis.tracks):
        mine, first = ((f"{HIDDEN}{layer} {names[0]}", each.label) for each in (track, axis.tracks[0]))
        points = _points(run, options, axis, track, names, layer, (mine, first))
        yield _Line(track.label, None, points, shown=False)


def _points(
    run: Run,
    options: TrajectoryOptions,
    axis: Axis,
    track: Track,
    names: Sequence[str],
    layer: int | None,
    named: tuple[_Named, _Named],
) -> list[Point]:
    """named: this line, and the one of the first track."""
    points = [
        replace(_point(run, options, place, names, layer, named[0]), family=(layer, track.label))
        for place in track.places
    ]
    if not axis.across:
        return points
    return [
        _across(point, place, names, track, axis.tracks[0], named[1])
        for point, place in zip(points, track.places, strict=True)
    ]


def _named(
    run: Run,
    options: TrajectoryOptions,
    track: Track,
    names: Sequence[str],
    layer: int | None,
    of_classes: bool,
    several: bool,
) -> _Named:
    """several: there is more than one panel for each layer."""
    what = title_of(names[0]) or sentences.listed([selection.class_label(run, name) for name in names])
    series, other = (what, track.label) if of_classes else (track.label, what)
    if layer is None:
        return other, series
    title = f"Layer {layer + options.number_from}"
    return (f"{title}, {other}" if several else title), series


def _across(point: Point, place: Place, names: Sequence[str], track: Track, first: Track, named: _Named) -> Point:
    """Compared with the first track at the same place; the first track itself with its own first place."""
    run = place.side.run
    if track is first:
        return replace(point, tested=names[0] in run.study.quantities and run.study.quantities[names[0]].relative)
    base = next((each for each in first.places if each.x == place.x), None)
    if base is None:
        return point
    by_edits = measure_by_edits_alone(base.side, place.side, place.queries, names)
    return replace(point, reference=Reference((*named, place.x), first.label), tested=not by_edits)


def _class_colours(run: Run, measures: Sequence[Sequence[str]]) -> dict[str, str]:
    """Those of the study, else colours that lines can be told apart by."""
    given = {name: spec.colour for name, spec in {**run.study.also, **run.study.classes}.items()}
    free = [colour for colour in selection.LINES if colour not in given.values()] or list(selection.LINES)
    return {names[0]: given.get(names[0]) or free[place % len(free)] for place, names in enumerate(measures)}


def _layers(run: Run, options: TrajectoryOptions) -> Sequence[int | None]:
    """The layers that have panels of their own; None stands for the mean over all that are chosen."""
    if options.by is None:
        return [None]
    every = [layer for model in options.models_of(run) for layer in selection.layers(run, options, model)]
    return sorted(set(every))


def _point(
    run: Run,
    options: TrajectoryOptions,
    place: Place,
    names: Sequence[str],
    layer: int | None,
    named: _Named,
) -> Point:
    side, where = place.side, f"figure {options.name}: measure"
    numbers = measure_values(side, place.queries, names, enrichment=options.value == "enrichment", where=where)
    layers = selection.layers(run, options, side.model) if layer is None else [layer]
    rows = [run.layers(side.model).index(each) for each in layers if each in run.layers(side.model)]
    heads = [run.heads(side.model).index(each) for each in selection.heads(run, options, side.model)]
    values = mean_of_seen(numbers.values[:, rows][:, :, heads], (1, 2))
    noise = run.noise(side.model, place.queries)
    floor = None
    if noise is not None and numbers.per_mass is not None and rows:
        floor = float(mean_of_seen((noise * numbers.per_mass)[rows][:, heads], (0, 1)))
    floor = None if floor is None or np.isnan(floor) else floor
    ends = bounds_shown(run, names, enrichment=options.value == "enrichment")
    null = null_of(run, names)
    return Point(*named, place.x, place.at, numbers.prompts, values, floor, ends, null=null)
