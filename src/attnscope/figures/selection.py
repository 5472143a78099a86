"""Which of a run's models, conditions, layers, heads and classes a figure shows. Figures may number from 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.figures import sentences
from attnscope.figures.kind import Look
from attnscope.study.classes import OTHER
from attnscope.study.parts import COLOUR, DepthsPart, FigurePart, HeadPart, PanelPart, layer_at

# Neighbours differ in lightness, so that parts of a bar can be told apart in gray and by colour-blind readers.
PALETTE = ("#b2182b", "#4393c3", "#c8c8c8", "#173f5f", "#fdb863", "#8073ac", "#a6dba0", "#7f3b08")
LAYOUTS = {"chat": "in the chat template", "plain": "as plain text"}
LINES = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf")


def present(run: Run, part: FigurePart) -> FigurePart | None:
    """The figure without models and conditions that the run has not; None if nothing would be left to show."""
    panels = part.panels and [_present(run, panel) for panel in part.panels if panel.model in run.models]
    differing = part.difference is None or all(name in (*run.models, *run.conditions) for name in part.difference)
    if not models(run, part) or not conditions(run, part) or panels == [] or not differing:
        return None
    return part.model_copy(update={"panels": panels})


def _present(run: Run, panel: PanelPart) -> PanelPart:
    return panel.model_copy(update={"also": [each for each in panel.also if each.model in run.models]})


def refuse_missing(run: Run, part: FigurePart) -> None:
    """A model may have no prompt under a condition: all were dropped, or none is measured yet."""
    labels, names = models(run, part), conditions(run, part)
    if part.difference is not None:
        if part.difference[0] in run.conditions:
            names = part.difference
        else:
            labels = part.difference
    if part.panels:
        labels = _panel_models(part)
    for label in labels:
        for name in names:
            if not run.has(label, name):
                held = [each for each in run.conditions if run.has(label, each)]
                raise AttnscopeError(
                    f"{label} has no prompt under {name}",
                    where=f"figure {part.name}",
                    allowed=f"of {label}: {', '.join(held)}",
                    todo="choose one of these, or wait if the run is still being measured",
                )


def _panel_models(part: FigurePart) -> list[str]:
    return list(dict.fromkeys(place.model for panel in part.panels or () for place in panel.places))


def layout_words(run: Run, part: FigurePart) -> str:
    """How the models shown got their prompts, as a sentence with a space before it; empty if the run doesn't say."""
    shown = _panel_models(part) or part.difference or models(run, part)
    labels = shown if set(shown) <= set(run.models) else models(run, part)
    words = laid_out([(label, run.layout(label)) for label in labels])
    return f" {words}." if words else ""


def laid_out(layouts: Sequence[tuple[str, str | None]]) -> str:
    """How each of several got its prompts: (name, layout), a layout of None being unknown. Empty if all are."""
    by_layout: dict[str, list[str]] = {}
    for name, layout in layouts:
        if layout is not None:
            by_layout.setdefault(LAYOUTS[layout], []).append(name)
    if len(by_layout) == 1:
        return f"Prompts {next(iter(by_layout))}"
    parts = [f"{words} for {sentences.listed(names)}" for words, names in by_layout.items()]
    return f"Prompts {', '.join(parts)}" if parts else ""


def models(run: Run, part: FigurePart) -> list[str]:
    return [label for label in part.models or run.models if label in run.models]


def conditions(run: Run, part: FigurePart) -> list[str]:
    return [name for name in part.conditions or run.conditions if name in run.conditions]


def queries(run: Run, part: FigurePart) -> str:
    return part.queries or run.study.measure.queries[0]


def classes(run: Run, part: FigurePart) -> list[str]:
    """`other` is left out unless asked for: it is what the study has no name for."""
    return part.classes or [name for name in run.classes if name != OTHER] or [OTHER]


def layers(run: Run, part: FigurePart, model: str) -> list[int]:
    """In data's numbering, among those measured."""
    measured = run.layers(model)
    if part.layers == "all":
        return measured
    if isinstance(part.layers, DepthsPart):
        wanted = [layer_at(depth, run.depth(model)) for depth in part.layers.depths]
    else:
        wanted = [layer - part.number_from for layer in part.layers]
    return _measured("layer", wanted, measured, model, part)


def heads(run: Run, part: FigurePart, model: str) -> list[int]:
    measured = run.heads(model)
    if isinstance(part.heads, str):
        return measured
    return _measured("head", [head - part.number_from for head in part.heads], measured, model, part)


def heads_words(run: Run, part: FigurePart) -> str:
    """Which heads a mean is over."""
    if not isinstance(part.heads, str):
        numbers = part.heads
    elif run.study.measure.heads == "all":
        return "all heads"
    else:
        numbers = [head + part.number_from for head in run.study.measure.heads]
    return f"head{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def layers_words(run: Run, part: FigurePart, shown: Sequence[str]) -> str:
    """Which layers a mean is over, if the models shown have the same."""
    chosen = {tuple(layers(run, part, model)) for model in shown}
    if len(chosen) > 1 or set(chosen) == {tuple(range(run.depth(model))) for model in shown}:
        return "all layers" if part.layers == "all" else "the layers chosen"
    (numbers,) = chosen
    return f"layer{'s' * (len(numbers) > 1)} {', '.join(str(each + part.number_from) for each in numbers)}"


def condition_label(run: Run, name: str) -> str:
    return run.study.condition(name).label or name


def model_colour(run: Run, label: str) -> str | None:
    return next(part.colour for part in run.study.models if part.label == label)


def title(run: Run, part: FigurePart, model: str, condition: str) -> str:
    """Of a panel that shows one model under one condition: what tells it from the others."""
    label = condition_label(run, condition)
    if len(conditions(run, part)) == 1:
        return model
    return label if len(models(run, part)) == 1 else f"{model}, {label}"


def class_label(run: Run, name: str) -> str:
    return (run.study.classes[name].label if name in run.study.classes else None) or name


def condition_colours(run: Run, names: Sequence[str]) -> dict[str, str]:
    """By label; those without a colour get one that no other was given."""
    given = {name: run.study.condition(name).colour for name in names}
    free = [colour for colour in LINES if colour not in given.values()] or list(LINES)
    left = iter(free * len(names))
    return {condition_label(run, name): given[name] or next(left) for name in names}


def colours_of(made: pl.DataFrame, column: str, palette: Sequence[str]) -> dict[str, str]:
    """What a figure's table says of the colour of each of a column's words; from the palette where it says nothing."""
    given = made.filter(pl.col("colour").str.contains(COLOUR)).unique(column, keep="first", maintain_order=True)
    known = dict(given.select(column, "colour").iter_rows())
    return {
        name: known.get(name) or palette[place % len(palette)] for place, name in enumerate(dict.fromkeys(made[column]))
    }


def class_colours(run: Run, names: Sequence[str]) -> dict[str, str]:
    """By label; `other` is nearly white."""
    given = {name: run.study.classes[name].colour for name in names if name in run.study.classes}
    return {
        class_label(run, name): given.get(name) or ("#eeeeee" if name == OTHER else PALETTE[place % len(PALETTE)])
        for place, name in enumerate(names)
    }


def title_of(seen: Look, marks: str = "", wide: int = 100) -> Any:
    """The figure's title and caption above it; nothing on a screen, which tells them itself."""
    if seen.room is not None:
        return alt.Undefined
    return alt.Title(seen.title, subtitle=sentences.wrapped(seen.caption + marks, wide), anchor="start")


def group_words(group: str) -> str:
    """A query group in a caption."""
    return {"last": "the last token", "all": "every token"}.get(group, f"the tokens of {group}")


def place_of(run: Run, part: FigurePart, head: HeadPart) -> tuple[int, int]:
    """A head's layer and number as data has them."""
    layers = _measured("layer", [head.layer - part.number_from], run.layers(head.model), head.model, part)
    return layers[0], _measured("head", [head.head - part.number_from], run.heads(head.model), head.model, part)[0]


def _measured(what: str, wanted: Sequence[int], measured: Sequence[int], model: str, part: FigurePart) -> list[int]:
    for number in wanted:
        if number not in measured:
            raise AttnscopeError(
                f"{what} {number + part.number_from} of {model} was not measured",
                where=f"figure {part.name}",
                allowed=f"{what}s {', '.join(str(each + part.number_from) for each in measured)}",
                todo="measure it, or choose another",
            )
    return list(dict.fromkeys(wanted))
