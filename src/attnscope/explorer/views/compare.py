"""The page that compares two heads: the difference in mass, class by class, within prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnscope.analysis.compared import family
from attnscope.analysis.comparisons import Comparison, Kind
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, discoveries
from attnscope.analysis.effects import effects
from attnscope.analysis.matching import BY_NUMBER, matched
from attnscope.analysis.one_way import one_way
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS, Side, masses
from attnscope.analysis.spread import cut_to_differences, mean_of_seen
from attnscope.explorer.responses import Pair, PairRow
from attnscope.explorer.views.choices import HeadChoice, check_name
from attnscope.figures import selection, sentences
from attnscope.study.independence import FEWEST


@dataclass(frozen=True)
class HeadSide:
    """One side of a pair: a head under a condition."""

    head: HeadChoice
    condition: str

    def check(self, run: Run) -> None:
        self.head.check(run)
        check_name(self.condition, run.conditions, "condition")


def pair(run: Run, left: HeadSide, right: HeadSide) -> Pair:
    """Right minus left by class, within prompts."""
    for side in (left, right):
        side.check(run)
    known = _known_pair(run, left, right)
    if known is not None:
        return known
    prompts, values = _shared_masses(run, left, right)
    differences = values[1] - values[0]
    lacking = ~(np.nan_to_num(values[0]).any(0) & np.nan_to_num(values[1]).any(0))
    differences[:, lacking] = np.nan  # a class that one side lacks has no difference
    estimated = effects(differences, clusters=run.clusters(prompts), seed=run.study.seed)
    certain = _by_edits(run, left, right)
    rates = discoveries(np.where([name in certain for name in run.token_sets], np.nan, estimated.p))
    floor = _rounding(run, (left, right))
    low, high = cut_to_differences(estimated.low, estimated.high)
    means = [mean_of_seen(each, 0) for each in values]
    rows = []
    for number, name in enumerate(run.token_sets):
        difference, q = _known(estimated.mean[number]), _known(rates[number])
        rows.append(
            PairRow(
                token_class=selection.class_label(run, name),
                left=_known(means[0][number]),
                right=_known(means[1][number]),
                difference=difference,
                low=_known(low[number]),
                high=_known(high[number]),
                q=q,
                significant=_significant(difference, q, floor),
                n=int(estimated.n[number]),
            )
        )
    return Pair(rows=rows, facts=list(_facts(run, left, right, prompts.tolist())))


def _known_pair(run: Run, left: HeadSide, right: HeadSide) -> Pair | None:
    """Of heads that the run's comparisons pair: their rows there, so that a difference has one q wherever it is shown.

    None for other heads, or attention from different queries: the run does not compare them.
    """
    order = [run.models.index(side.head.model) for side in (left, right)]
    turned = order[0] > order[1]  # models are compared with the first
    one, two = (right, left) if turned else (left, right)
    if one.head.queries != two.head.queries or (one.head.model, one.condition) == (two.head.model, two.condition):
        return None
    kind: Kind = "condition" if one.head.model == two.head.model else "model"
    first, second = (Side(run, side.head.model, side.condition) for side in (one, two))
    comparison = Comparison(kind, first, second)
    tables = family(comparison, one.head.queries, MASS)
    if tables is None:
        return None
    places = {"layer": one.head.layer, "head": one.head.head, "layer_two": two.head.layer, "head_two": two.head.head}
    rows = list(tables[0].filter(**places).iter_rows(named=True))
    prompts = sorted(comparison.prompts_of[0] & comparison.prompts_of[1])
    if not rows:
        return None
    facts = list(_facts(run, left, right, prompts, known=True))
    return Pair(rows=[_known_row(run, row, turned) for row in rows], facts=facts)


def _known_row(run: Run, row: dict[str, Any], turned: bool) -> PairRow:
    """A row of a comparison; turned: left and right are the other way round."""
    ends = ("two", "one") if turned else ("one", "two")
    sign = -1 if turned else 1
    difference, low, high = (None if row[name] is None else sign * row[name] for name in ("difference", "low", "high"))
    lacking = not (row["one"] and row["two"])  # a class that one side lacks has no difference
    return PairRow(
        token_class=selection.class_label(run, row["token_class"]),
        left=row[ends[0]],
        right=row[ends[1]],
        difference=difference,
        low=None if lacking else high if turned else low,
        high=None if lacking else low if turned else high,
        q=row["q"],
        significant=row["sure"],
        n=row["n"],
    )


def _by_edits(run: Run, left: HeadSide, right: HeadSide) -> set[str]:
    """Classes whose difference follows from the conditions' edits alone, for the queries of either side."""
    sides = [Side(run, each.head.model, each.condition) for each in (left, right)]
    return set().union(*(one_way(sides[0], sides[1], each.head.queries, MASS) for each in (left, right)))


def _shared_masses(run: Run, left: HeadSide, right: HeadSide) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """The prompts that both sides have, and each side's masses on them, (prompts, classes)."""
    stored = [masses(run, side.head.model, side.condition, side.head.queries) for side in (left, right)]
    prompts, *rows = np.intersect1d(stored[0].prompts, stored[1].prompts, return_indices=True)
    values = []
    for side, each, which in zip((left, right), stored, rows, strict=True):
        values.append(each.mass[which][:, *side.head.index(run)])
    return prompts, values


def _significant(difference: float | None, q: float | None, floor: float) -> bool | None:
    """Whether a difference is significant and larger than rounding; None if it is not tested."""
    if q is None or difference is None:
        return None
    return q < FALSE_DISCOVERIES and abs(difference) > floor


def _rounding(run: Run, sides: Sequence[HeadSide]) -> float:
    """How large rounding can make the difference of the two masses; 0 if unknown."""
    noises = [(run.noise(side.head.model, side.head.queries), side.head.index(run)) for side in sides]
    return sum(0.0 if noise is None else float(noise[index]) for noise, index in noises)


def _facts(run: Run, left: HeadSide, right: HeadSide, prompts: Sequence[int], *, known: bool = False) -> Iterator[str]:
    """known: the run compares these heads itself."""
    clusters = len(set(run.clusters(prompts).tolist()))
    yield f"Right minus left, mass by class, within {sentences.prompts_in_clusters(len(prompts), clusters)}."
    if _by_edits(run, left, right):
        yield "What the edit alone changes has an interval, but no q."
    if clusters < FEWEST:
        yield f"With fewer than {FEWEST} independent prompts there is no interval and no test."
    elif known:
        yield "q is the false discovery rate among all heads and classes of the comparison, as on the map."
    else:
        yield (
            "q is the false discovery rate among the classes of this pair; it does not account for how you chose the "
            "pair."
        )
    if left.head.model != right.head.model:
        sides = (Side(run, left.head.model, left.condition), Side(run, right.head.model, right.condition))
        if matched(*sides).method != BY_NUMBER:
            yield "In these two models, heads with the same number are not the same heads."


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
