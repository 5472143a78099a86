"""The answer to a study's question, in three to five sentences made from its numbers.

It is about one comparison and one class: those of the study's first map of a difference; otherwise a control if there
is one, and the class that changes most clearly. Effect, interval, heads, placebo, and what can't be said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnscope.analysis.compared import TEN, compare
from attnscope.analysis.comparisons import Comparison, comparisons, placebo_for
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, needed
from attnscope.analysis.multiverse import multiverse, verdicts
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS, masses
from attnscope.figures import selection, sentences
from attnscope.study.schema import FigureSpec
from attnscope.text.classes import OTHER

Row = dict[str, Any]

LIMIT = "This is where heads look, not what they use: whether it matters for the answer takes an intervention."


@dataclass(frozen=True)
class Focus:
    """What a study is mainly about."""

    comparisons: list[Comparison]
    """The same comparison in each model."""
    queries: str
    token_class: str | None
    """None if the study doesn't say."""


def answer(run: Run) -> list[str]:
    """The answer in sentences; empty if the run has no prompts to answer from."""
    focus = _focus(run)
    if focus is None:
        return list(_shares(run))
    first, *others = focus.comparisons
    row = _row(first, focus.queries, focus.token_class)
    if row is None:
        return list(_shares(run))
    words = [_effect(run, first, row)]
    words += [_others(run, others, row)] if others else []
    words += [" ".join(_heads(row))]
    words += [" ".join([*_placebo(run, first, row), *_robust(first, row)])]
    return [*(each for each in words if each), LIMIT]


def _focus(run: Run) -> Focus | None:
    every = [each for each in comparisons(run) if each.kind != "placebo"]
    for figure in run.study.figures:
        named = _named(run, figure, every)
        if named is not None:
            return named
    for kind in ("control", "condition", "model"):
        mine = [each for each in every if each.kind == kind]
        if mine:
            one, two = (side.condition for side in (mine[0].one, mine[0].two))
            alike = [each for each in mine if (each.one.condition, each.two.condition) == (one, two)]
            return Focus(alike if kind != "model" else mine[:1], run.study.measure.queries[0], None)
    return None


def _named(run: Run, figure: FigureSpec, every: list[Comparison]) -> Focus | None:
    """What a map of a difference shows, if it is of classes and the difference is one of the run's comparisons."""
    extra = figure.model_dump()
    wanted, measure = extra.get("difference"), extra.get("measure")
    name = measure[0] if isinstance(measure, list) and measure else measure
    if not wanted or name not in run.classes:
        return None
    mine = [each for each in every if set(each.sides) == set(wanted)]
    if not mine:
        return None
    return Focus(mine, figure.queries or run.study.measure.queries[0], name)


def _row(comparison: Comparison, queries: str, token_class: str | None) -> Row | None:
    """The mean over heads of one class: the one asked for, or the one that changes most clearly."""
    rows = compare(comparison).overall.filter(
        pl.col("queries") == queries, pl.col("quantity") == MASS, pl.col("n") > 0, pl.col("token_class") != OTHER
    )
    if token_class is not None:
        rows = rows.filter(pl.col("token_class") == token_class)
    clearest = rows.sort(pl.col("q").is_null(), pl.col("size").abs(), descending=[False, True], nulls_last=True)
    return next(clearest.iter_rows(named=True), None)


def _sides(run: Run, comparison: Comparison) -> tuple[str, str]:
    if comparison.kind == "model":
        return comparison.one.model, comparison.two.model
    one, two = (selection.condition_label(run, side.condition) for side in (comparison.one, comparison.two))
    return one, two


def _effect(run: Run, comparison: Comparison, row: Row) -> str:
    one, two = _sides(run, comparison)
    name = selection.class_label(run, row["token_class"])
    where = "" if comparison.kind == "model" or len(run.models) == 1 else f"In {comparison.one.model}, "
    what = f"attention on {name} from {selection.group_words(row['queries'])}"
    size = sentences.with_interval(abs(row["difference"]), *_turned(row))
    over = (
        f"mean over {sentences.counted(row['heads'], 'head')}, "
        f"{sentences.prompts_in_clusters(row['n'], row['clusters'])}"
    )
    if row["q"] is None:
        tested = "too few prompts for a test" if row["low"] is None else "not tested, as the edit alone changes it"
        sentence = (
            f"{what} is {_number(row['two'])} with {two} and {_number(row['one'])} with {one}, a difference of {size}"
        )
        return _upper(f"{where}{sentence} ({over}; {tested}).")
    if row["sure"]:
        way = "higher" if row["difference"] > 0 else "lower"
        sentence = f"{what} is {way} with {two} than with {one}, by {size}"
        return _upper(f"{where}{sentence} ({over}; {sentences.rate(row['q'])}).")
    if row["same_q"] is not None and row["same_q"] < FALSE_DISCOVERIES:
        sentence = f"{what} is the same with {two} and {one}, within the margin of {run.study.margin:g}"
    else:
        sentence = f"no difference in {what} between {two} and {one} can be shown"
    signed = sentences.with_interval(row["difference"], row["low"], row["high"])
    return _upper(f"{where}{sentence}: {signed} ({over}; {sentences.rate(row['q'])}).")


def _turned(row: Row) -> tuple[float | None, float | None]:
    """The ends of the interval of the difference's size."""
    low, high = row["low"], row["high"]
    if low is None or high is None or row["difference"] >= 0:
        return low, high
    return -high, -low


def _others(run: Run, others: list[Comparison], row: Row) -> str:
    """The same in the other models."""
    parts = []
    for each in others:
        other = _row(each, row["queries"], row["token_class"])
        if other is not None:
            place = each.one.model if each.kind != "model" else selection.condition_label(run, each.one.condition)
            shown = sentences.with_interval(other["difference"], other["low"], other["high"])
            parts.append(f"{shown}{'' if other['sure'] else ', not significant,'} in {place}")
    return f"The same difference is {sentences.listed(parts)}." if parts else ""


def _heads(row: Row) -> Iterator[str]:
    if row["up"] is not None:
        found = row["up"] + row["down"]
        if not found and needed(row["smallest_p"], row["tested"]) > 1:
            yield f"There are too few prompts to tell which of the {row['heads']} heads change."
        else:
            at_least = f", at least {row['true_at_least']} of them truly" if found else ""
            counts = f"{row['up']} of {row['heads']} heads rise and {row['down']} fall"
            yield f"{counts} (q < {FALSE_DISCOVERIES}){at_least}."
    if row["top_ten"] is not None and row["heads"] > TEN:
        middle = f"the median head changes by {_number(row['median'])}"
        yield f"Ten heads carry {row['top_ten']:.0%} of the change; {middle}."
    if row["chosen"]:
        yield f"Of {row['chosen']} heads chosen on half of the prompts, {row['held']} hold on the other half."


def _placebo(run: Run, comparison: Comparison, row: Row) -> Iterator[str]:
    null = placebo_for(comparison)
    if null is None:
        if comparison.kind in ("condition", "control"):
            yield "There is no placebo (control: redraw) to compare with."
        return
    drawn = _row(null, row["queries"], row["token_class"])
    if drawn is None:
        return
    found = "not tested" if drawn["up"] is None else f"{drawn['up'] + drawn['down']} of {drawn['heads']} heads change"
    shown = sentences.with_interval(drawn["difference"], drawn["low"], drawn["high"])
    label = selection.condition_label(run, null.one.condition)
    yield f"Placebo ({label}, drawn twice): {shown}; {found}."


def _robust(comparison: Comparison, row: Row) -> Iterator[str]:
    """Whether the sign depends on how one counts."""
    if not comparison.paired:
        return
    table = multiverse(comparison)
    mine = verdicts(table.filter(pl.col("token_class") == row["token_class"])) if len(table) else table
    for each in mine.iter_rows(named=True):
        if each["flips"]:
            yield f"The sign of the effect depends on how one counts: it flips with {each['flips']}."
        else:
            empty = f"; {each['empty']} more leave the class without tokens" if each["empty"] else ""
            yield f"The sign of the effect is the same under all {each['choices']} ways to count{empty}."


def _shares(run: Run) -> Iterator[str]:
    """Of a study without anything to compare: where attention goes."""
    model, condition = run.models[0], next(name for name in run.conditions if run.has(run.models[0], name))
    queries = run.study.measure.queries[0]
    group = run.study.measure.queries.index(queries)
    arrays = masses(run, model, condition)
    parts = {}
    for place, name in enumerate(run.classes):
        mass, expected = (each[:, group, :, :, place].mean() for each in (arrays.mass, arrays.expected))
        parts[name] = (float(mass), float(mass / expected) if expected > 0 else None)
    named = {name: each for name, each in parts.items() if name != OTHER} or parts
    words = []
    for name, (mass, times) in sorted(named.items(), key=lambda item: -item[1][0]):
        relative = f" ({times:.2g} times uniform attention)" if times is not None else ""
        words.append(f"{mass:.0%} on {selection.class_label(run, name)}{relative}")
    heads = sentences.counted(len(run.layers(model)) * len(run.heads(model)), "head")
    many = sentences.counted(len(arrays.prompts), "prompt")
    yield (
        f"Of the attention from {selection.group_words(queries)} in {model}, mean over {heads} and {many}, "
        f"{sentences.listed(words)}."
    )
    yield "Nothing is compared, so nothing is tested."


def _number(value: float) -> str:
    return sentences.number(value)


def _upper(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
