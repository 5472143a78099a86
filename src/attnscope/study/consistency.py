"""What can be wrong with a study whose every key is right by itself: names that nothing bears, or two things bear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnscope.errors import near
from attnscope.measures.names import ENTROPY, KEPT, MEASURES, MOVED, OF_INSERTIONS
from attnscope.measures.patterns import PATTERNS
from attnscope.study.schema import FigureSpec, PromptsSpec, Study
from attnscope.text.classes import OTHER
from attnscope.text.layout import Layout, Layouts
from attnscope.text.segments import ANSWER, INSERTED, TEMPLATE

RESERVED = (TEMPLATE, INSERTED, ANSWER)


@dataclass(frozen=True)
class Problem:
    """at: the way to the key, as in `("models", 0, "label")`."""

    at: tuple[str | int, ...]
    what: str
    allowed: str


def layouts_of(prompts: PromptsSpec) -> Layouts | None:
    """The layouts a study gives; None for those of its bundled set, or of its fields one after the other."""
    if prompts.chat is None and prompts.plain is None:
        return None
    lines = {"user": prompts.chat} if isinstance(prompts.chat, str) else prompts.chat or {}
    return Layouts(
        chat=Layout(tuple((str(role), line) for role, line in lines.items())) if lines else None,
        plain=Layout(((None, prompts.plain),)) if prompts.plain is not None else None,
    )


def problems(study: Study) -> Iterator[Problem]:
    """Everything wrong that can be told without the prompts, in the order of the file."""
    yield from _doubles([("models", place, "label") for place in range(len(study.models))], study.models, "label")
    yield from _doubles([("figures", place, "name") for place in range(len(study.figures))], study.figures, "name")
    yield from _of_prompts(study)
    yield from _of_conditions(study)
    yield from _of_classes(study)
    layouts = layouts_of(study.prompts)
    if layouts is not None and study.prompts.items is not None:  # else the prompts are to be read first
        yield from segment_problems(study, layouts)
    for number, figure in enumerate(study.figures):
        yield from figure_problems(study, figure, number)


def segment_problems(study: Study, layouts: Layouts) -> Iterator[Problem]:
    """Segments that are named but not there; layouts: the prompts' own, which a set or a file may give."""
    for layout in layouts.every:
        yield from _of_places(study, layout)
        yield from _of_segments(study, layout)


def _doubles(places: Sequence[tuple[str | int, ...]], parts: Sequence[Any], key: str) -> Iterator[Problem]:
    """Names that are there twice."""
    seen: set[str] = set()
    for at, part in zip(places, parts, strict=True):
        name = getattr(part, key)
        if name in seen:
            yield Problem(at, f"'{name}' is there twice", "each name once")
        seen.add(name)


def _labels(places: Sequence[tuple[str | int, ...]], labels: Sequence[str]) -> Iterator[Problem]:
    for number, (at, label) in enumerate(zip(places, labels, strict=True)):
        if label in labels[:number]:
            yield Problem(at, f"two are labelled '{label}', so figures could not tell them apart", "each label once")


def _of_classes(study: Study) -> Iterator[Problem]:
    for name in study.classes:
        if name in (OTHER, *MEASURES):
            yield Problem(("classes", name), f"'{name}' has a meaning of its own", "any other name")
    names = [*study.classes, OTHER]
    labels = [*(part.label or name for name, part in study.classes.items()), OTHER]
    yield from _labels([("classes", name, "label") for name in names], labels)


def _of_prompts(study: Study) -> Iterator[Problem]:
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
    yield from _doubles([(*at, "name") for at in places], study.conditions, "name")
    yield from _labels([(*at, "label") for at in places], [part.label or part.name for part in study.conditions])
    for number, part in enumerate(study.conditions):
        if part.match is not None:
            earlier = [each.name for each in study.conditions[:number] if each.insert is not None]
            if part.match not in earlier:
                what = f"there is no earlier condition '{part.match}' that inserts something"
                yield Problem(("conditions", number, "match"), what, near(part.match, earlier or ["(none)"]))


def _of_places(study: Study, layout: Layout) -> Iterator[Problem]:
    """Where conditions insert: at a segment that is there, and there once."""
    known = layout.fields
    for number, part in enumerate(study.conditions):
        for key in ("before", "after"):
            segment = getattr(part, key)
            if segment is not None and segment not in known:
                yield Problem(
                    ("conditions", number, key), f"{_no_segment(study, layout)} '{segment}'", near(segment, known)
                )
            elif segment is not None and layout.times(segment) > 1:
                what = f"segment '{segment}' is in the {layout.key} layout {layout.times(segment)} times"
                yield Problem(("conditions", number, key), what, "a segment that is there once")
        if part.insert is not None and part.insert.segment is not None and part.insert.segment not in known:
            what = f"{_no_segment(study, layout)} '{part.insert.segment}'"
            yield Problem(("conditions", number, "insert"), what, near(part.insert.segment, known))


def _no_segment(study: Study, layout: Layout) -> str:
    both = study.prompts.chat is not None and study.prompts.plain is not None
    return f"the {layout.key} layout has no segment" if both else "no segment is named"


def _of_segments(study: Study, layout: Layout) -> Iterator[Problem]:
    known = layout.fields
    every = [*known, TEMPLATE, INSERTED, *([ANSWER] if study.prompts.answer else [])]
    for name, part in study.classes.items():
        for key in ("segment", "within"):
            segment = getattr(part, key)
            if segment is not None and segment not in every:
                what = f"{_no_segment(study, layout)} '{segment}'"
                yield Problem(("classes", name, key), what, near(segment, every))
    groups = ["last", "all", *known, *([ANSWER] if study.prompts.answer else [])]
    for number, group in enumerate(study.measure.queries):
        if group in study.measure.queries[:number]:
            yield Problem(("measure", "queries", number), f"'{group}' is there twice", "each group once")
        if group not in groups:
            hint = " (prompts have no answer)" if group == ANSWER else ""
            yield Problem(("measure", "queries", number), f"unknown query group '{group}'{hint}", near(group, groups))


def figure_problems(study: Study, figure: FigureSpec, number: int = 0) -> Iterator[Problem]:
    """Models, conditions and queries that a figure names and the study does not have; its kind checks the rest."""
    known = {"models": [part.label for part in study.models], "conditions": [part.name for part in study.conditions]}
    for key, words in known.items():
        yield from name_problems(getattr(figure, key) or (), words, ("figures", number, key))
    if figure.queries is not None and figure.queries not in study.measure.queries:
        what = f"query group '{figure.queries}' is not measured"
        yield Problem(("figures", number, "queries"), what, near(figure.queries, study.measure.queries))


def name_problems(names: Sequence[str], known: Sequence[str], at: tuple[str | int, ...]) -> Iterator[Problem]:
    """Names in a list that nothing has, or that are listed twice. at: the key of the list."""
    for place, name in enumerate(names):
        if name not in known:
            yield Problem((*at, place), f"there is no '{name}' in {at[-1]}", near(name, known))
        elif name in names[:place]:
            yield Problem((*at, place), f"'{name}' is listed twice", "each name once")


def unmeasured(study: Study, queries: str | None) -> dict[str, str]:
    """Measures that the study can't show for a query group (by default its first), each with the reason."""
    group = queries or study.measure.queries[0]
    found = {} if study.measure.entropy else {ENTROPY: "measure: entropy is off"}
    if not study.measure.patterns and group != "last":
        found |= dict.fromkeys(PATTERNS, "measure: patterns is off")
    inserts = {part.insert is not None for part in study.conditions}
    if inserts != {True, False}:
        why = "it needs the base prompt and a condition that inserts something"
        found |= dict.fromkeys(OF_INSERTIONS, why)
    elif group != "last":
        found |= dict.fromkeys((KEPT, MOVED), "it is defined for a single query: queries: last")
    return found
