"""Statements without a difference, in words: how large something is in each condition, or its course in a series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.levels import Course, Level, course, level
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.figures import selection, sentences
from attnscope.study.headline import HeadlineSpec


def levels_in_words(run: Run, statement: HeadlineSpec) -> Iterator[str]:
    """A paragraph for each model, of a training for its ends; none where nothing was measured."""
    written = list(_by_model(run, statement))
    if written:
        written[-1] += between_words(run)
    yield from written


def between_words(run: Run) -> str:
    """How many checkpoints have no sentence of their own, as a sentence with a space before it; empty if none."""
    between = len(run.models) - len(run.compared_models)
    if not between:
        return ""
    return f" {sentences.counted(between, 'checkpoint')} between: see a trajectory."


def _by_model(run: Run, statement: HeadlineSpec) -> Iterator[str]:
    for model in run.compared_models:
        names = [name for name in statement.conditions or run.conditions[:1] if run.has(model, name)]
        sides = [Side(run, model, name) for name in names]
        if statement.over is not None:
            courses = [course(side, statement.over, statement.measure) for side in sides]
            words = _courses(run, statement, [each for each in courses if each is not None])
        else:
            levels = [level(side, statement.queries or run.queries[0], statement.measure) for side in sides]
            words = _levels(run, statement, [each for each in levels if each is not None])
        if words:
            where = f"In {model}, " if len(run.compared_models) > 1 else ""
            sentence = f"{where}{words}"
            yield sentence[0].upper() + sentence[1:]


def _levels(run: Run, statement: HeadlineSpec, levels: Sequence[Level]) -> str:
    if not levels:
        return ""
    first, *others = levels
    what = _what(run, statement.measure, first.queries)
    if others:
        values = "; ".join(f"{_value(each)}{',' * bool(each.uniform)} {_under(each)}" for each in levels)
        sentence = f"{what}: {values} ({_over(levels)}; 95 % intervals{_tested(levels)})."
    else:
        interval = (
            "" if first.low is None or first.high is None else f"95 % interval {_interval(first.low, first.high)}, "
        )
        sentence = (
            f"{what} is {sentences.number(first.value)}{_times(first)} ({interval}{_over(levels)}{_tested(levels)})."
        )
    return " ".join([sentence, *_parts(run, levels), *_heads(levels), *([] if others else [_strongest(first)])])


def _strongest(each: Level) -> str:
    """The heads that have most of it."""
    named = [f"{layer}.{head} ({sentences.number(value)})" for layer, head, value in each.strongest]
    return f"Highest of all heads (layer.head): {sentences.listed(named)}, chosen on these prompts."


def _interval(low: float, high: float) -> str:
    return f"{sentences.number(low)} to {sentences.number(high)}"


def _what(run: Run, measure: str, queries: str) -> str:
    if measure not in run.token_sets:
        return quantity_words(run, measure, queries)
    return f"attention on {selection.class_label(run, measure)} from {selection.group_words(queries)}"


def quantity_words(run: Run, name: str, queries: str) -> str:
    """A quantity and the queries that it is measured from, in one pair of brackets."""
    label, group = selection.class_label(run, name), selection.whose_words(run, queries, name)
    return f"{label[:-1]}; from {group})" if label.endswith(")") else f"{label} (from {group})"


def _value(each: Level) -> str:
    return f"{sentences.with_interval(each.value, each.low, each.high)}{_times(each)}"


def _times(each: Level) -> str:
    return f", {sentences.times_uniform(each.value / each.uniform)}" if each.uniform else ""


def _under(each: Level) -> str:
    return f'with "{selection.condition_label(each.side.run, each.side.condition)}"'


def _over(levels: Sequence[Level | Course]) -> str:
    """What a mean is over: the same for all levels, or a range."""
    first = levels[0].first if isinstance(levels[0], Course) else levels[0]
    least, most = (pick(each.n for each in levels) for pick in (min, max))
    prompts = (
        sentences.prompts_in_clusters(most, levels[0].clusters)
        if least == most
        else sentences.range_of(least, most, "prompt")
    )
    return f"mean over {sentences.counted(first.heads, 'head')} and {prompts}"


def _tested(levels: Sequence[Level]) -> str:
    if levels[0].null is None:
        return ""
    known = [each.p for each in levels if each.p is not None]
    if not known:
        return f"; {sentences.untested(levels[0].n, levels[0].clusters, same=all(each.same for each in levels))}"
    which = "largest " if len(known) > 1 else ""
    return f"; tested against {levels[0].null:g}: {which}{_p(max(known))}"


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"


def _parts(run: Run, levels: Sequence[Level]) -> Iterator[str]:
    """Of a difference between sets within prompts: what each of them receives in these prompts, per condition."""
    first = levels[0]
    quantity = run.study.quantities.get(first.measure)
    if quantity is None or first.null is None or any(True for _ in (*quantity.conditions, *quantity.series)):
        return
    for each in levels:
        parts = [(name, level(each.side, each.queries, name, each.prompts)) for _, name in quantity.token_sets]
        known = [
            f"{selection.class_label(run, name)} {sentences.number(part.value)}"
            for name, part in parts
            if part is not None
        ]
        if len(known) > 1:
            under = f" {_under(each)}" if len(levels) > 1 else ""
            yield f"Received{under}: {sentences.listed(known)}."


def _heads(levels: Sequence[Level]) -> Iterator[str]:
    for each in levels:
        if each.above is None or each.below is None or each.p is None:
            continue
        start = f"{_under(each)}, ".capitalize() if len(levels) > 1 else ""
        if not each.above + each.below:
            none = f"none of {each.heads} heads differs significantly from {each.null:g} (q < {FALSE_DISCOVERIES})"
            few = f"there are too few prompts for one of the {each.heads} heads alone to be significant"
            words = f"{start}{none if each.can_tell else few}."
            yield words[0].upper() + words[1:]
            continue
        found = f"{each.above} of {each.heads} heads are above {each.null:g} and {each.below} below"
        yield f"{start}{found} (q < {FALSE_DISCOVERIES})."


def _courses(run: Run, statement: HeadlineSpec, courses: Sequence[Course]) -> str:
    if not courses:
        return ""
    label = selection.class_label(run, statement.measure)
    what = f"attention on {label}" if statement.measure in run.token_sets else label
    parts = []
    for each in courses:
        start = f"{_under(each.first)}, " if len(courses) > 1 else ""
        first, last = (f"{sentences.number(end.value)} ({where})" for end, where in _ends(each))
        parts.append(f"{start}{what} {_way(each)} from {first} to {last}, by {_change(each)}{_sure(each)}")
    intervals = "; 95 % intervals" if any(each.low is not None for each in courses) else ""
    return f"{'; '.join(parts)} ({_over(courses)}{intervals})."


def _ends(each: Course) -> Iterator[tuple[Level, str]]:
    """Both ends and where they are; if that is not the series' own end, why."""
    for word, end, reach in zip(("first", "last"), (each.first, each.last), each.reach, strict=True):
        why = "" if reach is None else f", the {word} that at least half of the prompts reach: "
        yield end, f"{end.queries}{why}" + ("" if reach is None else f"{reach.prompts} of {reach.most}")


def _change(each: Course) -> str:
    """How far it goes; without a sign where the verb has it."""
    if _way(each) == "falls" and each.low is not None and each.high is not None:
        return sentences.with_interval(-each.difference, -each.high, -each.low)
    return sentences.with_interval(each.difference, each.low, each.high)


def _way(each: Course) -> str:
    """Rises or falls only where that is sure."""
    if each.low is None or each.high is None or each.low <= 0 <= each.high:
        return "goes"
    return "rises" if each.difference > 0 else "falls"


def _sure(each: Course) -> str:
    if each.p is not None:
        return f", {_p(each.p)}"
    if each.low is None:
        return f", {sentences.untested(each.n, each.clusters)}"
    if each.first.uniform is None or each.last.uniform is None:
        return ", not tested: later queries see more tokens"
    ends = f"{sentences.number(each.first.uniform)} to {sentences.number(each.last.uniform)}"
    return f", not tested: later queries see more tokens, and uniform attention goes from {ends}"
