"""The answer to a study's question, in a few sentences made from its numbers.

It is about the study's headline. Without one, it is about one comparison and its classes: those of the study's
first map of a difference; otherwise a control if there is one, and the first class that a figure names or the one that
changes most clearly. Effect, interval, heads, placebo, and what can't be said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from attnscope.analysis.compared import TEN, too_few
from attnscope.analysis.comparisons import Comparison, placebo_for
from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.multiverse import multiverse, verdicts
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS, masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.figures import selection, sentences
from attnscope.report.effects import BESIDE, effects_in_words
from attnscope.report.focus import Focus, Row, focus_of, focus_of_statement, of_run, row_of
from attnscope.report.levels import between_words, levels_in_words, quantity_words
from attnscope.runs.evidence import NONE, UNPROVEN
from attnscope.text.classes import OTHER

LIMIT = "This is where heads look, not what they use: only an intervention can show whether it matters for the answer."

NOTHING = "Nothing is compared, so nothing is tested."


def answer(run: Run) -> list[str]:
    """The answer in sentences; empty if the run has no prompts to answer from."""
    words = _statements(run) if run.study.headline else _of_focus(run, focus_of(run))
    effects = effects_in_words(run)
    if not words:
        return [*_shares(run), *(effects or [NOTHING]), *_removed(run), *_unproven(run)]
    return [*words, *effects, *_removed(run), BESIDE if effects else LIMIT, *_unproven(run)]


def _statements(run: Run) -> list[str]:
    """A paragraph for each statement of the study's headline; what has no numbers in this run is left out."""
    words = []
    is_first = True
    for statement in run.study.headline:
        if statement.difference is None:
            words += list(levels_in_words(run, statement))
            continue
        focus = focus_of_statement(run, statement)
        sentences_of = [] if focus is None else _of_focus(run, focus, in_full=is_first)
        words += sentences_of
        is_first = is_first and not sentences_of
    return words


def _of_focus(run: Run, focus: Focus | None, *, in_full: bool = True) -> list[str]:
    """What a comparison shows. in_full: with its placebo, and whether it depends on how one counts."""
    if focus is None:
        return []
    first, *others = focus.comparisons
    found = (row_of(first, focus.queries, each, focus.quantity) for each in focus.classes or (None,))
    rows = [row for row in found if row is not None]
    if not rows:
        return []
    row, *more = rows
    if not in_full:
        same = [_others(run, others, row)] if others else []
        return [" ".join(each for each in (_effect(run, first, row), *same, *list(_heads(row))[:1]) if each)]
    words = [" ".join([_effect(run, first, row), *(_also(run, first, each) for each in more)])]
    words += [_others(run, others, row)] if others else []
    words += [" ".join(_heads(row))]
    words += [" ".join([*_placebo(run, first, row), *_robust(first, rows, focus)])]
    return [each for each in words if each]


def _removed(run: Run) -> list[str]:
    if not run.study.without:
        return []
    return [f"Shares are of the attention that does not go to {selection.removed_tokens_words(run)}."]


def _unproven(run: Run) -> list[str]:
    return [UNPROVEN] if run.manifest.evidence == NONE else []


def _sides(run: Run, comparison: Comparison) -> tuple[str, str]:
    if comparison.kind == "model":
        return comparison.one.model, comparison.two.model
    one, two = (
        "the base prompt" if side.is_base else f'"{selection.condition_label(run, side.condition)}"'
        for side in (comparison.one, comparison.two)
    )
    return one, two


def _by(comparison: Comparison) -> tuple[str, str]:
    """Words that go before the names of the sides."""
    one, two = (
        "in" if comparison.kind == "model" or side.is_base else "with" for side in (comparison.one, comparison.two)
    )
    return one, two


def _minus(run: Run, comparison: Comparison) -> str:
    """The direction of a difference, as the study asks for it."""
    one, two = _sides(run, comparison)
    return f"{two} minus {one}"


def _effect(run: Run, comparison: Comparison, row: Row) -> str:
    one, two = (f"{by} {name}" for by, name in zip(_by(comparison), _sides(run, comparison), strict=True))
    where = "" if comparison.kind == "model" or len(run.compared_models) == 1 else f"In {comparison.one.model}, "
    what = _measured(run, row)
    over = (
        f"mean over {sentences.counted(row['heads'], 'head')} and "
        f"{sentences.prompts_in_clusters(row['n'], row['clusters'])}"
    )
    size = f"{_minus(run, comparison)}: {_number(row['difference'])}"
    values = f"{what} is {_number(row['two'])} {two} and {_number(row['one'])} {one}"
    if row["q"] is None:
        why = sentences.untested(row["n"], row["clusters"], same=row["error"] == 0)
        tested = why if row["low"] is None else f"{_interval(row)}; not tested, as the edit alone changes it"
        return _upper(f"{where}{values} ({size}, {over}; {tested}).")
    tested = f"{_interval(row)}, {over}; {sentences.rate(row['q'])}"
    if row["sure"]:
        way = "higher" if row["difference"] > 0 else "lower"
        return _upper(f"{where}{what} is {way} {two} than {one}, by {_number(abs(row['difference']))} ({tested}).")
    if row["same_q"] is not None and row["same_q"] < FALSE_DISCOVERIES:
        margin = f"differs by less than the margin of {run.study.margin:g}"
        return _upper(f"{where}{what} {margin} ({size}, {tested}).")
    if row["low"] is not None and row["low"] * row["high"] > 0:  # only the number of tests speaks against it
        return _upper(f"{where}{values} ({size}, {tested}, so not significant).")
    names = " and ".join(reversed(_sides(run, comparison)))
    return _upper(f"{where}no difference in {what} between {names} can be shown ({size}, {tested}).")


def _measured(run: Run, row: Row) -> str:
    if row["quantity"] == MASS:
        return f"attention on {_class(run, row)} from {selection.group_words(row['queries'])}"
    return quantity_words(run, row["quantity"], row["queries"])


def _also(run: Run, comparison: Comparison, row: Row) -> str:
    """The same comparison, of another class."""
    shown = sentences.with_interval(row["difference"], row["low"], row["high"])
    tested = "not tested" if row["q"] is None else sentences.rate(row["q"]) if row["sure"] else "not significant"
    return f"On {_class(run, row)} the difference is {shown}, {tested} ({_minus(run, comparison)})."


def _class(run: Run, row: Row) -> str:
    """A class by its label, or by its name in quotation marks."""
    name = row["token_class"]
    label = selection.class_label(run, name)
    return f'"{name}"' if label == name else label


def _interval(row: Row) -> str:
    """The interval of a difference's size."""
    low, high = _turned(row) if row["sure"] else (row["low"], row["high"])
    return f"95 % interval {_number(low)} to {_number(high)}"


def _turned(row: Row) -> tuple[float, float]:
    """The ends of the interval of the difference's size."""
    return (row["low"], row["high"]) if row["difference"] >= 0 else (-row["high"], -row["low"])


def _others(run: Run, others: list[Comparison], row: Row) -> str:
    """The same in the other models."""
    parts = []
    for each in others:
        other = row_of(each, row["queries"], row["token_class"], row["quantity"])
        if other is not None:
            place = each.one.model if each.kind != "model" else selection.condition_label(run, each.one.condition)
            shown = sentences.with_interval(other["difference"], other["low"], other["high"])
            verdict = "" if other["sure"] else ", not tested" if other["q"] is None else ", not significant"
            parts.append(f"{place}: {shown}{verdict}")
    if not parts:
        return ""
    between = "" if others[0].kind == "model" else between_words(run)
    return f"The same ({_minus(run, others[0])}) in {'; in '.join(parts)}.{between}"


def _heads(row: Row) -> Iterator[str]:
    if row["up"] is not None:
        if too_few(row):
            yield f"There are too few prompts for one of the {row['heads']} heads alone to be significant."
        else:
            yield _counts(row, row["up"] + row["down"])
    if row["top_ten"] is not None and row["heads"] > TEN:
        middle = f"the median head changes by {_number(row['median'])}"
        yield f"Ten heads account for {row['top_ten'] * 100:.0f} % of all change, up and down; {middle}."
    if row["chosen"]:
        chosen = sentences.counted(row["chosen"], "head")
        yield f"Of {chosen} chosen on half of the prompts, {row['held']} held on the other half."


def _counts(row: Row, found: int) -> str:
    """How many heads change, and how many of these are no chance."""
    if not found:
        return f"None of {row['heads']} heads changes significantly (q < {FALSE_DISCOVERIES})."
    counts = f"Of {row['heads']} heads, {row['up']} rose and {row['down']} fell significantly (q < {FALSE_DISCOVERIES})"
    real = row["true_at_least"]
    sure = f"at least {real} of these {found} {'is' if real == 1 else 'are'} real, with 95 % confidence"
    return f"{counts}; {sure}." if real else f"{counts}."


def _placebo(run: Run, comparison: Comparison, row: Row) -> Iterator[str]:
    null = placebo_for(comparison)
    if null is None:
        if comparison.kind in ("condition", "control") and _is_random(run, comparison):
            yield "There is no placebo (control: redraw) to compare with."
        return
    drawn = row_of(null, row["queries"], row["token_class"], row["quantity"])
    if drawn is None:
        return
    if drawn["up"] is None:
        found = "not tested"
    elif too_few(drawn):
        found = "too few prompts or clusters for one head alone to be significant"
    else:
        found = f"{drawn['up'] + drawn['down'] or 'none'} of {drawn['heads']} heads changed significantly"
    shown = sentences.with_interval(drawn["difference"], drawn["low"], drawn["high"])
    if drawn["same_q"] is not None and drawn["same_q"] < FALSE_DISCOVERIES:
        shown += f", within the margin of {run.study.margin:g}"
    label = selection.condition_label(run, null.one.condition)
    yield f"Placebo ({label}, drawn twice): {shown}; {found}."


def _is_random(run: Run, comparison: Comparison) -> bool:
    """Whether a side would be another prompt if it were drawn again."""
    return any(run.study.condition(side.condition).is_random for side in (comparison.one, comparison.two))


def _robust(comparison: Comparison, rows: Sequence[Row], focus: Focus) -> Iterator[str]:
    """Whether the sign depends on how one counts, for each class that the answer is about."""
    if not comparison.paired or rows[0]["quantity"] != MASS:
        return
    run, table = comparison.one.run, multiverse(of_run(comparison))
    if focus.asks_queries:
        table = table.filter(pl.col("queries") == focus.queries)
    found = {each["token_class"]: each for each in verdicts(table).iter_rows(named=True)} if len(table) else {}
    for row in rows:
        each = found.get(row["token_class"])
        if each is None or not each["choices"]:
            continue
        what = f"The sign of the difference{f' on {_class(run, row)}' if len(rows) > 1 else ''}"
        if each["flips"]:
            yield f"{what} depends on how one counts: it is reversed {each['flips']}."
        else:
            distinct = f", which give {sentences.counted(each['distinct'], 'different number')}"
            empty = f"; {each['empty']} more leave the class without tokens" if each["empty"] else ""
            yield f"{what} is the same under all {each['choices']} ways to count{distinct}{empty}."


def _shares(run: Run) -> Iterator[str]:
    """Of a study without anything to compare: where attention goes."""
    model, condition = run.models[0], next(name for name in run.conditions if run.has(run.models[0], name))
    queries = run.queries[0]
    arrays = masses(run, model, condition, queries)
    parts = {}
    for name in run.classes:
        values = arrays.of([name])
        mass, expected = (float(mean_of_seen(each, (0, 1, 2))) for each in values)
        if not np.isnan(mass):
            having = int((~np.isnan(values[0])).any((1, 2)).sum())
            parts[name] = (mass, mass / expected if expected > 0 else None, having)
    named = {name: each for name, each in parts.items() if name != OTHER} or parts
    prompts = int((~np.isnan(arrays.mass)).any((1, 2, 3)).sum())
    if not named:
        yield f"No class has a share of the attention from {selection.group_words(queries)}: nothing is left."
        return
    same = all(having == prompts for *_, having in named.values())
    words = []
    for name, (mass, times, having) in sorted(named.items(), key=lambda item: -item[1][0]):
        facts = [sentences.times_uniform(times)] if times is not None else []
        facts += [] if same else [f"n = {having}"]
        more = f" ({', '.join(facts)})" if facts else ""
        words.append(f"{mass:.0%} on {selection.class_label(run, name)}{more}")
    heads = sentences.counted(len(run.layers(model)) * len(run.heads(model)), "head")
    many = sentences.counted(prompts, "prompt") if same else f"the prompts (of {prompts}) that have the class"
    yield (
        f"Of the attention from {selection.group_words(queries)} in {model}, mean over {heads} and {many}, "
        f"{sentences.listed(words)}."
    )


def _number(value: float) -> str:
    return sentences.number(value)


def _upper(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
