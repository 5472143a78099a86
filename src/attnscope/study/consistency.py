"""What can be wrong with a study whose every key is right by itself: names that nothing bears, or two things bear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnscope.errors import near
from attnscope.study.classes import OTHER
from attnscope.study.layout import Layout
from attnscope.study.parts import FigurePart, PromptsPart, Study
from attnscope.study.segments import ANSWER, INSERTED, TEMPLATE

RESERVED = (TEMPLATE, INSERTED, ANSWER)
ENTROPY, SINK = "entropy", "sink"
"""What a map of heads can show besides classes."""


@dataclass(frozen=True)
class Problem:
    """at: the way to the key, as in `("models", 0, "label")`."""

    at: tuple[str | int, ...]
    what: str
    allowed: str


def layout_of(prompts: PromptsPart) -> Layout | None:
    """The layout a study gives; None for that of its bundled set, or of its fields one after the other."""
    if prompts.plain is not None:
        return Layout(((None, prompts.plain),))
    if isinstance(prompts.chat, str):
        return Layout((("user", prompts.chat),))
    if prompts.chat is not None:
        return Layout(tuple((str(role), line) for role, line in prompts.chat.items()))
    return None


def problems(study: Study) -> Iterator[Problem]:
    """Everything wrong, in the order of the file."""
    yield from _doubles(("models",), [part.label for part in study.models], "label")
    yield from _doubles(("conditions",), [part.name for part in study.conditions], "name")
    yield from _doubles(("figures",), [part.name for part in study.figures], "name")
    yield from _of_prompts(study)
    yield from _of_conditions(study)
    if OTHER in study.classes:
        yield Problem(("classes", OTHER), f"'{OTHER}' holds what no class claims", "any other name")
    yield from _of_segments(study)
    for number, figure in enumerate(study.figures):
        yield from _of_figure(study, figure, number)


def _doubles(at: tuple[str, ...], names: Sequence[str], key: str) -> Iterator[Problem]:
    for number, name in enumerate(names):
        if name in names[:number]:
            yield Problem((*at, number, key), f"'{name}' is there twice", "each name once")


def _of_prompts(study: Study) -> Iterator[Problem]:
    layout = layout_of(study.prompts)
    if layout is None:
        return
    for field in layout.fields:
        if field in RESERVED:
            key = "chat" if layout.chat else "plain"
            yield Problem(("prompts", key), f"'{field}' can't be a field", "any name but " + ", ".join(RESERVED))
    if not layout.fields:
        key = "chat" if layout.chat else "plain"
        yield Problem(("prompts", key), "the layout has no {field}, so all prompts would be the same", "at least one")


def _of_conditions(study: Study) -> Iterator[Problem]:
    known = _segments(study)
    for number, part in enumerate(study.conditions):
        for key in ("before", "after"):
            segment = getattr(part, key)
            if segment is not None and known is not None and segment not in known:
                yield Problem(("conditions", number, key), f"no segment is named '{segment}'", near(segment, known))
        if part.match is not None:
            earlier = [each.name for each in study.conditions[:number] if each.insert is not None]
            if part.match not in earlier:
                what = f"there is no earlier condition '{part.match}' that inserts something"
                yield Problem(("conditions", number, "match"), what, near(part.match, earlier or ["(none)"]))


def _of_segments(study: Study) -> Iterator[Problem]:
    known = _segments(study)
    if known is None:
        return
    every = [*known, TEMPLATE, INSERTED, *([ANSWER] if study.prompts.answer else [])]
    for name, part in study.classes.items():
        for key in ("segment", "within"):
            segment = getattr(part, key)
            if segment is not None and segment not in every:
                yield Problem(("classes", name, key), f"no segment is named '{segment}'", near(segment, every))
    groups = ["last", "all", *known, *([ANSWER] if study.prompts.answer else [])]
    for number, group in enumerate(study.measure.queries):
        if group in study.measure.queries[:number]:
            yield Problem(("measure", "queries", number), f"'{group}' is there twice", "each group once")
        if group not in groups:
            hint = " (prompts have no answer)" if group == ANSWER else ""
            yield Problem(("measure", "queries", number), f"unknown query group '{group}'{hint}", near(group, groups))


def _of_figure(study: Study, figure: FigurePart, number: int) -> Iterator[Problem]:
    labels = [part.label for part in study.models]
    names = [part.name for part in study.conditions]
    known = {"models": labels, "conditions": names, "classes": [*study.classes, OTHER]}
    for key, words in known.items():
        for place, word in enumerate(getattr(figure, key) or ()):
            if word not in words:
                yield Problem(("figures", number, key, place), f"there is no '{word}' in {key}", near(word, words))
    if figure.queries is not None and figure.queries not in study.measure.queries:
        what = f"query group '{figure.queries}' is not measured"
        yield Problem(("figures", number, "queries"), what, near(figure.queries, study.measure.queries))
    measures = [*study.classes, OTHER, SINK, *([ENTROPY] if study.measure.entropy else [])]
    if figure.measure is not None and figure.measure not in measures:
        hint = " (measure: entropy is off)" if figure.measure == ENTROPY else ""
        what = f"there is no measure '{figure.measure}'{hint}"
        yield Problem(("figures", number, "measure"), what, near(figure.measure, measures))
    yield from _of_panels(figure, number, labels)
    for place, word in enumerate(figure.difference or ()):
        if word not in (*labels, *names):
            yield Problem(
                ("figures", number, "difference", place),
                f"there is no model or condition '{word}'",
                near(word, [*labels, *names]),
            )


def _of_panels(figure: FigurePart, number: int, labels: Sequence[str]) -> Iterator[Problem]:
    for place, panel in enumerate(figure.panels or ()):
        for turn, each in enumerate(panel.places):
            at: tuple[str | int, ...] = ("figures", number, "panels", place, *(("also", turn - 1) if turn else ()))
            if each.model not in labels:
                yield Problem((*at, "model"), f"there is no model '{each.model}'", near(each.model, labels))
            for key in ("layer", "head"):
                if getattr(each, key) < figure.number_from:
                    yield Problem((*at, key), f"there is no {key} 0 when they are numbered from 1", "numbers from 1")
            if each.model != panel.model and figure.form == "full":
                yield Problem(at, "lines of two models have no whole sequence in common", "form: shared")


def _segments(study: Study) -> list[str] | None:
    """The fields of the study's own layout; None where they are those of a set or a file."""
    layout = layout_of(study.prompts)
    return None if layout is None else layout.fields
