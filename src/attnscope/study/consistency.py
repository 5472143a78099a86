"""Problems of a study whose keys are each valid on their own: names that don't exist, or that occur twice."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from attnscope.edits.prompt import PROMPT_EDITS, EditProblem, PromptEdit
from attnscope.edits.prompt.insert import Insert
from attnscope.errors import StoppingError, near
from attnscope.measures import MEASURES
from attnscope.measures.names import KEPT, MOVED, OF_INSERTIONS, head_measures, map_measures
from attnscope.measures.patterns import PATTERNS
from attnscope.quantities import QUANTITIES
from attnscope.study.headline import HeadlineSpec
from attnscope.study.intervention_problems import of_interventions, written_queries, written_rules
from attnscope.study.problem import Problem as Problem
from attnscope.study.problem import duplicates, listed_twice, shared_labels
from attnscope.study.problem import name_problems as name_problems
from attnscope.study.schema import NAME, DepthsSpec, FigureSpec, PromptsSpec, Study
from attnscope.text.classes import OTHER, REMOVED, Rule, parse_rule
from attnscope.text.groups import GROUPS, known_groups
from attnscope.text.groups.every import ALL
from attnscope.text.layout import Layout, Layouts
from attnscope.text.patterns import SECONDS, matched_characters
from attnscope.text.query_rules import MOST, QueryRule, Series, sources_of, titles_of
from attnscope.text.query_rules.each import Each
from attnscope.text.query_rules.match import Match
from attnscope.text.rules import RULES
from attnscope.text.rules.pattern import PATTERN
from attnscope.text.segments import ANSWER, INSERTED, SELECTORS, TEMPLATE, Selector, Span, selector_problem
from attnscope.text.sets import PROMPT_SETS

RESERVED = (TEMPLATE, INSERTED, ANSWER)
NAMED = "text on one line, without control characters"


@dataclass(frozen=True)
class Contents:
    """What the prompts of a study have, once they have been read."""

    parts: Sequence[Span]
    """Every segment that some prompt has, with its roles."""
    fields: Sequence[str]
    """Every field in which some prompt has a text that edits can use."""
    texts: Sequence[str]
    """Each prompt with its answer, as far as it is known without a chat template."""


def layouts_of(prompts: PromptsSpec) -> Layouts | None:
    """The layouts given in a study; None if they come from its prompt set or are the default."""
    if prompts.chat is None and prompts.plain is None:
        return None
    lines = {"user": prompts.chat} if isinstance(prompts.chat, str) else prompts.chat or {}
    return Layouts(
        chat=Layout(tuple((str(role), line) for role, line in lines.items())) if lines else None,
        plain=Layout(((None, prompts.plain),)) if prompts.plain is not None else None,
    )


def _layouts_of_set(prompts: PromptsSpec) -> Layouts | None:
    return PROMPT_SETS.members[prompts.set].layouts if prompts.set in PROMPT_SETS.members else None


def problems(study: Study) -> Iterator[Problem]:
    """All problems that can be found without reading the prompts, in the order of the file."""
    yield from duplicates([("models", place, "label") for place in range(len(study.models))], study.models, "label")
    for place, spec in enumerate(study.models):
        if spec.label in study.families:
            yield Problem(("models", place, "label"), f"'{spec.label}' is also a training's name", "each name once")
    yield from duplicates([("figures", place, "name") for place in range(len(study.figures))], study.figures, "name")
    yield from _of_prompts(study)
    yield from _of_conditions(study)
    yield from _of_classes(study)
    yield from _of_what_is_measured(study)
    yield from _of_quantities(study)
    yield from of_interventions(study)
    own = layouts_of(study.prompts)
    layouts = own or _layouts_of_set(study.prompts)
    for problem in segment_problems(study, layouts) if layouts is not None else ():
        if own is None or study.prompts.items is not None or not _may_mean_a_field(problem, own):
            yield problem
    for number, figure in enumerate(study.figures):
        yield from figure_problems(study, figure, number)
    for number, statement in enumerate(study.headline):
        yield from _of_headline(study, statement, ("headline", number))


def _may_mean_a_field(problem: Problem, layouts: Layouts) -> bool:
    """Whether the layout's field may be the misspelt one; this shows once the prompts are read."""
    nearest = problem.allowed.partition(": ")[2].split(", ")
    return any(field in nearest for field in layouts.fields)


def problems_with_prompts(study: Study, layouts: Layouts, contents: Contents) -> Iterator[Problem]:
    """Problems that show once the prompts are read: what a study names and none has, patterns that never end."""
    yield from segment_problems(study, layouts, contents)
    yield from _of_patterns(study, contents.texts)


def segment_problems(study: Study, layouts: Layouts, contents: Contents | None = None) -> Iterator[Problem]:
    """Segments that are named but don't exist. layouts: of the prompts, which may come from a set or a file.

    contents: of the prompts, once they have been read.
    """
    for layout in layouts.every:
        yield from _of_edits(study, layout, contents)
        yield from _of_segments(study, layout, None if contents is None else contents.parts)


def _of_patterns(study: Study, texts: Sequence[str]) -> Iterator[Problem]:
    """Patterns that take too long, as far as a short try shows."""
    patterns: list[tuple[tuple[str | int, ...], str, str]] = [
        *((at, rule.argument, "a class") for at, rule in _rules(study) if rule.kind is PATTERN),
        *(
            (("measure", "queries", number, Match.key), rule.match, "a query group")
            for number, rule in enumerate(study.measure.queries)
            if isinstance(rule, Match)
        ),
    ]
    for at, pattern, what in patterns:
        started = time.monotonic()
        for text in texts:
            try:
                matched_characters(pattern, text, what, pattern)
            except StoppingError as error:
                yield Problem(at, error.what, error.allowed, error.todo)
                break
            if time.monotonic() - started > SECONDS:
                break


def _of_classes(study: Study) -> Iterator[Problem]:
    every = [("classes", name) for name in study.classes] + [("also", name) for name in study.also]
    for key, name in every:
        if not re.match(NAME, name):
            yield Problem((key, name), f"'{name}' has the wrong form", NAMED)
        if name in (OTHER, REMOVED, *map_measures()):
            yield Problem((key, name), f"'{name}' is a reserved name", "any other name")
        if key == "also" and name in study.classes:
            yield Problem((key, name), f"there is already a class '{name}'", "each name once")
    specs = {**study.also, **study.classes}
    labels = [*(specs[name].label or name for _, name in every), OTHER]
    yield from shared_labels([*((key, name, "label") for key, name in every), ("classes", OTHER)], labels)


def _of_quantities(study: Study) -> Iterator[Problem]:
    taken = (*study.token_sets, REMOVED, *map_measures())
    conditions = [spec.name for spec in study.conditions]
    for name, quantity in study.quantities.items():
        at = ("quantities", name)
        if not re.match(NAME, name):
            yield Problem(at, f"'{name}' has the wrong form", NAMED)
        if name in taken:
            yield Problem(at, f"'{name}' is a class, a set or a measure already", "any other name")
        with QUANTITIES.blamed(quantity.key, "names"):
            needed = [
                *((each, "class or set", study.token_sets) for each in quantity.token_sets),
                *((each, "condition", conditions) for each in quantity.conditions),
                *((each, "measured number per key", _per_key(study)) for each in quantity.measures),
                *((each, "series of query groups", study.measure.series) for each in quantity.series),
            ]
            sets = dict(quantity.token_sets)
        if REMOVED in study.token_sets and REMOVED in sets.values() and len(set(sets.values())) > 1:
            path = next(path for path, used in sets.items() if used == REMOVED)
            what = f"'{REMOVED}' is a share of all attention, and the other sets are shares of what is left without it"
            yield Problem((*at, *path), what, "classes and sets that are shares of the same whole", "leave it out")
        for (path, used), what, known in needed:
            if used not in known:
                yield Problem((*at, *path), f"there is no {what} '{used}'", near(used, known))


def _per_key(study: Study) -> list[str]:
    """The measures with one number per key that the study measures."""
    return [name for name in study.measure.all_measures if name in MEASURES.members and MEASURES.members[name].axes]


def _of_what_is_measured(study: Study) -> Iterator[Problem]:
    """Measures that don't exist, what is listed twice, and more query groups than there can be."""
    measure = study.measure
    named = measure.measures
    for number, name in enumerate(named):
        at = ("measure", "measures", number)
        if name not in MEASURES.members:
            yield Problem(at, f"unknown measure '{name}'", near(name, MEASURES.members))
        elif name in named[:number]:
            yield Problem(at, f"'{name}' is listed twice", "each measure once")
    for key, numbers in (("layers", measure.layers), ("heads", measure.heads)):
        given = numbers.depths if isinstance(numbers, DepthsSpec) else numbers if isinstance(numbers, list) else []
        path = (key, "depths") if isinstance(numbers, DepthsSpec) else (key,)
        yield from listed_twice(given, ("measure", *path))
    yield from listed_twice(study.without, ("without",))
    yield from _of_many_groups(study)


def _of_many_groups(study: Study) -> Iterator[Problem]:
    """More query groups than there can be, as far as it is known before any answer is written."""
    queries = study.measure.queries
    if len(queries) > MOST:  # each is at least one group
        what, todo = f"there are {len(queries):,} query groups", "list fewer"
        yield Problem(("measure", "queries"), what, f"at most {MOST:,}", todo)
    generated = None if study.prompts.answer is None else study.prompts.answer.generate
    grow = [place for place, rule in enumerate(queries) if isinstance(rule, Each) and _grows(rule.each)]
    most = (generated or 0) * len(grow) + len(queries) - len(grow)
    if generated is not None and grow and most > MOST:
        yield Problem(
            ("measure", "queries", grow[0], Each.key),
            f"generate: {generated} of prompts.answer may give {most:,} query groups",
            f"at most {MOST:,}",
            "generate fewer tokens, or take fewer, larger groups: {bins: {of: answer, count: 64}}",
        )


def _grows(group: str) -> bool:
    """Whether a query group has a query for every token of an answer."""
    return group == ALL.name or (group in GROUPS.members and GROUPS.members[group].segment == ANSWER)


def _of_prompts(study: Study) -> Iterator[Problem]:
    name = study.prompts.set
    if name is not None and name not in PROMPT_SETS.members:
        yield Problem(("prompts", "set"), f"unknown set of prompts '{name}'", near(name, PROMPT_SETS.members))
    layouts = layouts_of(study.prompts)
    for layout in layouts.every if layouts else ():
        at = ("prompts", layout.key)
        for field in layout.fields:
            if field in RESERVED:
                yield Problem(at, f"'{field}' can't be a field", "any name but " + ", ".join(RESERVED))
        if study.prompts.items is not None:
            columns = [*study.prompts.fields, *dict.fromkeys(key for item in study.prompts.items for key in item)]
            for field in layout.fields:
                if field not in columns:
                    yield Problem(at, f"the prompts have no field '{field}'", near(field, columns))
        if not layout.fields:
            yield Problem(at, "the layout has no {field}, so all prompts would be the same", "at least one")


def _of_conditions(study: Study) -> Iterator[Problem]:
    places = [("conditions", place) for place in range(len(study.conditions))]
    yield from duplicates([(*at, "name") for at in places], study.conditions, "name")
    yield from shared_labels([(*at, "label") for at in places], [spec.label or spec.name for spec in study.conditions])
    for number, spec in enumerate(study.conditions):
        if spec.control == "redraw" and not spec.is_random:
            what = f"nothing in '{spec.name}' is drawn at random, so a second draw would be the same"
            random = "an edit with random text, such as insert: {sentence: random}"
            yield Problem(("conditions", number, "control"), what, random)
        earlier = [each.name for each in study.conditions[:number] if each.inserts]
        for place, edit in enumerate(spec.edits):
            match = edit.match if isinstance(edit, Insert) else None
            if match is not None and match not in earlier:
                what = f"there is no earlier condition '{match}' that inserts text"
                yield Problem(("conditions", number, "edits", place, "match"), what, near(match, earlier))


def _of_edits(study: Study, layout: Layout, contents: Contents | None) -> Iterator[Problem]:
    """Problems that edits have with a layout or with the prompts, such as a missing segment."""
    for number, spec in enumerate(study.conditions):
        inserted = False
        for place, edit in enumerate(spec.edits):
            with PROMPT_EDITS.blamed(edit.key, "problems"):
                problems = list(edit.problems(replace(layout, inserted=inserted)))
            if contents is not None and not problems:
                problems = list(_unmet(edit, contents, inserted=inserted))
            inserted = inserted or edit.may_insert
            for problem in problems:
                yield Problem(("conditions", number, "edits", place, problem.key), problem.what, problem.allowed)


def _unmet(edit: PromptEdit, contents: Contents, *, inserted: bool) -> Iterator[EditProblem]:
    """What an edit needs and no prompt has. inserted: whether an earlier edit may have inserted text."""
    parts = [*contents.parts, *([Span(INSERTED, 0, 0)] if inserted else [])]
    with PROMPT_EDITS.blamed(edit.key, "named_segments"):
        segments = list(edit.named_segments())
    for key, selector in segments:
        absent = _absent(selector, parts)
        if absent is not None:
            yield EditProblem(key, *absent)
    with PROMPT_EDITS.blamed(edit.key, "named_fields"):
        fields = list(edit.named_fields())
    for key, field in fields:
        if field not in contents.fields:
            yield EditProblem(key, f"no prompt has a field '{field}' with some text", near(field, contents.fields))


def _missing(
    selector: str, layout: Layout, study: Study, parts: Sequence[Span] | None, *, answered: bool = False
) -> tuple[str, str] | None:
    """What is wrong with a selector of segments, and what is allowed; None if some prompt may have such a segment.

    answered: it is about prompts with the answer that interventions are judged by.
    """
    problem = selector_problem(selector)
    if problem is not None:
        return f"{problem} in '{selector}'", SELECTORS
    own = [TEMPLATE, INSERTED, *([ANSWER] if study.prompts.answer or answered else [])]
    wanted = Selector.of(selector)
    if wanted.name in own and (wanted.role, wanted.place) == (None, None):
        return None
    if not layout.may_have(wanted.name):
        return f"the {layout.key} layout has no segment '{selector}'", near(selector, [*layout.segments, *own])
    return None if parts is None else _absent(selector, parts)


def _absent(selector: str, parts: Sequence[Span]) -> tuple[str, str] | None:
    """What is wrong with a selector that no prompt has a segment for; None if one has. parts: of all prompts."""
    wanted = Selector.of(selector)
    if wanted.segments(parts):
        return None
    known = list(
        dict.fromkeys(part.segment for part in parts if Selector(wanted.name.partition(".")[0]).covers(part.segment))
    )
    roles = list(dict.fromkeys(part.role for part in parts if part.role and wanted.covers(part.segment)))
    if wanted.role is not None and wanted.role not in roles:
        return f"no prompt has a '{wanted.name}' with the role '{wanted.role}'", near(wanted.role, roles)
    return f"no prompt has the segment '{selector}'", near(selector, known)


def _rules(study: Study) -> list[tuple[tuple[str | int, ...], Rule]]:
    """The rules of classes, of sets and of what is left out, each after its place in the file."""
    return [
        *((("classes", name), spec.parsed) for name, spec in study.classes.items()),
        *((("also", name), spec.parsed) for name, spec in study.also.items()),
        *((("without", place), parse_rule(rule)) for place, rule in enumerate(study.removed_rules)),
        *((at, parse_rule(rule)) for at, rule in written_rules(study)),
    ]


def _of_segments(study: Study, layout: Layout, parts: Sequence[Span] | None) -> Iterator[Problem]:
    """Segments that classes and query groups name."""
    for at, rule in _rules(study):
        with RULES.blamed(rule.kind.name, "segments"):
            named = [(rule.kind.study_key, segment) for segment in rule.kind.segments(rule.argument)]
        for key, segment in [*named, *([("within", rule.within)] if rule.within is not None else [])]:
            missing = _missing(segment, layout, study, parts, answered=at[0] == "interventions")
            if missing is not None:
                yield Problem(at if at[0] == "without" else (*at, key), *missing)
    yield from _of_queries(study, layout, parts)
    answered = [ANSWER] if study.prompts.answer or study.outcome else []
    groups = [*known_groups([*layout.segments, *answered]), *study.measure.groups]
    for at, name in written_queries(study):
        if name not in groups and not _may_be_measured(study, name) and _missing(name, layout, study, parts):
            yield Problem(at, f"unknown query group '{name}'", near(name, groups))


def _of_queries(study: Study, layout: Layout, parts: Sequence[Span] | None) -> Iterator[Problem]:
    """Groups and segments that queries name, alone or in a rule."""
    segments = [*layout.segments, *([ANSWER] if study.prompts.answer else [])]
    groups = known_groups(segments)
    titles, series = titles_of(study.measure.queries), Series(study.measure.queries)
    seen: set[str] = set()
    for (number, *path), name in sources_of(study.measure.queries):
        at, title = ("measure", "queries", number, *path), titles[int(number)]
        if title in seen:
            todo = "each group once; a rule may have a name of its own, as in {each: answer, name: word}"
            yield Problem(at, f"'{title}' is listed twice", todo)
        seen.add(title)
        rule = study.measure.queries[int(number)]
        clash = _meaning(rule.name, series, layout) if isinstance(rule, QueryRule) and rule.name is not None else None
        if isinstance(rule, QueryRule) and clash is not None:
            yield Problem(("measure", "queries", number, "name"), f"'{rule.name}' is {clash} already", "any other name")
        missing = None if name in groups else _missing(name, layout, study, parts)
        if missing is not None:
            of_answer = GROUPS.members[name].segment == ANSWER if name in GROUPS.members else False
            hint = " (prompts have no answer)" if of_answer else ""
            yield Problem(at, f"unknown query group '{name}'{hint}", near(name, groups))
        elif name == INSERTED and not any(edit.may_insert for spec in study.conditions for edit in spec.edits):
            yield Problem(at, "no condition inserts text, so no prompt has the segment 'inserted'", near(name, groups))
        elif name in segments and name in GROUPS.members and name != ANSWER:
            yield Problem(at, f"'{name}' is a query group and a segment", "another name for the segment")


def _meaning(name: str, series: Series, layout: Layout) -> str | None:
    """What a rule's name means already, if anything: its groups could not be told from others."""
    if name in (*GROUPS.members, *RESERVED) or layout.may_have(name):
        return "a query group or a segment"
    other = series.of(name)
    return None if other is None else f"a group of '{other.title}'"


def figure_problems(study: Study, figure: FigureSpec, number: int = 0) -> Iterator[Problem]:
    """Models, conditions and queries that a figure names but the study lacks; the figure's kind checks the rest."""
    labels = [*(spec.label for spec in study.models), *study.families]
    known = {"models": labels, "conditions": [spec.name for spec in study.conditions]}
    for key, words in known.items():
        yield from name_problems(getattr(figure, key) or (), words, ("figures", number, key))
    if figure.queries is not None and not _may_be_measured(study, figure.queries):
        what = f"query group '{figure.queries}' is not measured"
        allowed = near(figure.queries, [*study.measure.groups, *study.measure.series])
        yield Problem(("figures", number, "queries"), what, allowed)


def _of_headline(study: Study, statement: HeadlineSpec, at: tuple[str | int, ...]) -> Iterator[Problem]:
    """Names in a statement that the study lacks."""
    conditions, labels = [spec.name for spec in study.conditions], [spec.label for spec in study.models]
    named = [*study.token_sets, *study.quantities]
    if statement.measure not in named:
        what = f"there is no class, set or quantity '{statement.measure}'"
        yield Problem((*at, "measure"), what, near(statement.measure, named))
    if statement.queries is not None and not _may_be_measured(study, statement.queries, series=False):
        what = f"query group '{statement.queries}' is not measured"
        yield Problem((*at, "queries"), what, near(statement.queries, study.measure.groups))
    if statement.over is not None and statement.over not in study.measure.series:
        what = f"there is no series of query groups '{statement.over}'"
        yield Problem((*at, "over"), what, near(statement.over, study.measure.series))
    yield from name_problems(statement.conditions or (), conditions, (*at, "conditions"))
    if statement.difference is not None:
        first = statement.difference[0]
        sides = labels if first in labels and first not in conditions else conditions
        known = sides if first in sides else [*conditions, *labels]
        yield from name_problems(statement.difference, known, (*at, "difference"))


def _may_be_measured(study: Study, queries: str, *, series: bool = True) -> bool:
    """Whether a study has a group (or series) of this name; how many groups a series has is known from the prompts."""
    if queries in (*study.measure.groups, *(study.measure.series if series else ())):
        return True
    return Series(study.measure.queries).of(queries) is not None


def selector_problems(study: Study, selector: str, at: tuple[str | int, ...]) -> Iterator[Problem]:
    """What is wrong with a segment that something in the study names, as far as the layouts show."""
    layouts = layouts_of(study.prompts) or _layouts_of_set(study.prompts)
    missing = [_missing(selector, layout, study, None) for layout in layouts.every] if layouts is not None else []
    yield from (Problem(at, *each) for each in missing[:1] if all(missing) and each is not None)


def unmeasured(study: Study, queries: str | None) -> dict[str, str]:
    """Measures that are not available for a query group (by default the first), with the reason."""
    one_query = (queries or study.measure.groups[0]) == "last"
    reasons = {
        name: f"not measured: write measures: [{name}]"
        for name in head_measures()
        if name not in study.measure.all_measures
        and not (one_query and name in PATTERNS)  # those follow from `received`
    }
    if not (any(spec.is_base for spec in study.conditions) and any(spec.inserts for spec in study.conditions)):
        reasons |= dict.fromkeys(OF_INSERTIONS, "it needs the base prompt and a condition that inserts text")
    elif not one_query:
        reasons |= dict.fromkeys((KEPT, MOVED), "it is defined for a single query: queries: last")
    return reasons
