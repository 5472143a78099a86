"""What can be wrong with a study whose every key is right by itself: names that nothing bears, or two things bear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnscope.errors import near
from attnscope.measures import MEASURES
from attnscope.measures.names import KEPT, MOVED, OF_INSERTIONS, head_measures, map_measures
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
    yield from _of_measure_names(study)
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
        if name in (OTHER, *map_measures()):
            yield Problem(("classes", name), f"'{name}' has a meaning of its own", "any other name")
    names = [*study.classes, OTHER]
    labels = [*(part.label or name for name, part in study.classes.items()), OTHER]
    yield from _labels([("classes", name, "label") for name in names], labels)


def _of_measure_names(study: Study) -> Iterator[Problem]:
    named = study.measure.measures
    for number, name in enumerate(named):
        at = ("measure", "measures", number)
        if name not in MEASURES.members:
            yield Problem(at, f"unknown measure '{name}'", near(name, MEASURES.members))
        elif name in named[:number]:
            yield Problem(at, f"'{name}' is there twice", "each measure once")


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
    """What a figure asks for that the study has not."""
    labels = [part.label for part in study.models]
    names = [part.name for part in study.conditions]
    known = {"models": labels, "conditions": names, "classes": [*study.classes, OTHER]}
    for key, words in known.items():
        shown = getattr(figure, key) or ()
        for place, word in enumerate(shown):
            if word not in words:
                yield Problem(("figures", number, key, place), f"there is no '{word}' in {key}", near(word, words))
            elif word in shown[:place]:
                yield Problem(("figures", number, key, place), f"'{word}' is there twice", "each once")
    if figure.queries is not None and figure.queries not in study.measure.queries:
        what = f"query group '{figure.queries}' is not measured"
        yield Problem(("figures", number, "queries"), what, near(figure.queries, study.measure.queries))
    yield from _of_measures(study, figure, number)
    yield from _of_top(study, figure, number)
    yield from _of_parts(study, figure, number)
    yield from _of_panels(figure, number, labels)
    for place, word in enumerate(figure.difference or ()):
        if word not in (*labels, *names):
            yield Problem(
                ("figures", number, "difference", place),
                f"there is no model or condition '{word}'",
                near(word, [*labels, *names]),
            )
    if figure.difference is not None:
        one, two = figure.difference
        if one == two or not ({one, two} <= set(labels) or {one, two} <= set(names)):
            what = f"'{one}' and '{two}' can't be told apart so"
            yield Problem(("figures", number, "difference"), what, "two conditions, or two models")


def _of_top(study: Study, figure: FigureSpec, number: int) -> Iterator[Problem]:
    if figure.top is None:
        return
    if figure.kind != "lines" or figure.panels is not None:
        yield Problem(("figures", number, "heads"), f"'{figure.heads}' is for lines without panels", "all, or numbers")
    elif len(figure.conditions or study.conditions) < 2:
        what = f"'{figure.heads}' needs two conditions: an effect is how far their lines are apart"
        yield Problem(("figures", number, "heads"), what, "two conditions in the figure")


def _of_parts(study: Study, figure: FigureSpec, number: int) -> Iterator[Problem]:
    if figure.kind == "parts" and ("last" not in study.measure.queries or figure.queries not in (None, "last")):
        yield Problem(("figures", number, "kind"), "parts are told of one query, the last token", "queries: last")


def _of_measures(study: Study, figure: FigureSpec, number: int) -> Iterator[Problem]:
    hidden = unmeasured(study, figure)
    measures = [name for name in (*study.classes, OTHER, *map_measures()) if name not in hidden]
    for measure in figure.measures:
        if measure not in measures:
            hint = f" ({hidden[measure]})" if measure in hidden else ""
            what = f"there is no measure '{measure}'{hint}"
            yield Problem(("figures", number, "measure"), what, near(measure, measures))
        elif len(figure.measures) > 1 and measure in map_measures():
            what = f"{measure} can't be added to others"
            yield Problem(("figures", number, "measure"), what, "classes can be summed")


def unmeasured(study: Study, figure: FigureSpec) -> dict[str, str]:
    """Measures that the study can't show, each with the reason."""
    one_query = (figure.queries or study.measure.queries[0]) == "last"
    found = {
        name: f"not measured: write measures: [{name}]"
        for name in head_measures()
        if name not in study.measure.measured and not (one_query and name in PATTERNS)  # `received` gives those
    }
    inserts = {part.insert is not None for part in study.conditions}
    if inserts != {True, False}:
        why = "it needs the base prompt and a condition that inserts something"
        found |= dict.fromkeys(OF_INSERTIONS, why)
    elif not one_query:
        found |= dict.fromkeys((KEPT, MOVED), "it is defined for one query: queries: last")
    return found


def _of_panels(figure: FigureSpec, number: int, labels: Sequence[str]) -> Iterator[Problem]:
    titles: list[tuple[str, int, int]] = []
    for place, panel in enumerate(figure.panels or ()):
        titles.append((panel.model, panel.layer, panel.head))
        if titles[-1] in titles[:-1]:
            yield Problem(("figures", number, "panels", place), "this panel is there twice", "each head once")
        heads = [(each.model, each.layer, each.head) for each in panel.places]
        if len(set(heads)) < len(heads):
            yield Problem(("figures", number, "panels", place, "also"), "a head is there twice", "each head once")
        for turn, each in enumerate(panel.places):
            at: tuple[str | int, ...] = ("figures", number, "panels", place, *(("also", turn - 1) if turn else ()))
            if each.model not in labels:
                yield Problem((*at, "model"), f"there is no model '{each.model}'", near(each.model, labels))
            for key in ("layer", "head"):
                if getattr(each, key) < figure.number_from:
                    yield Problem((*at, key), f"there is no {key} 0 when they are numbered from 1", "numbers from 1")
            if each.model != panel.model and figure.form == "full":
                yield Problem(at, "lines of two models have no whole sequence in common", "form: shared")
