"""What a prompt edit declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from attnscope.edits.sources import Source
from attnscope.errors import near
from attnscope.spec import Spec
from attnscope.text.layout import Layout
from attnscope.text.segments import SELECTORS, Piece, Selector, selector_problem

Lines = Sequence[tuple[str | None, Sequence[Piece]]]
"""A prompt before it is assembled: the role of each message (None for plain text) and its pieces."""

TAKEN = ("name", "label", "colour", "edits", "control", "redraws")
"""Keys that every condition has, whatever its edits."""


@dataclass(frozen=True)
class EditProblem:
    """Something wrong with an edit. key: the study-file key it is at."""

    key: str
    what: str
    allowed: str


@dataclass(frozen=True)
class EditContext:
    """What an edit can use: one prompt, one condition and one model."""

    where: str
    """The prompt and the condition, for errors."""
    model: str
    """The model's label."""
    fields: Mapping[str, str]
    """The prompt's fields."""
    vocabulary: Sequence[str]
    """Words of the model's vocabulary."""
    rng: Callable[[int], Random]
    """(attempt) -> random numbers; they depend on study, condition, prompt and attempt, but not on the model."""
    count: Callable[[Lines, str], int]
    """(lines, segment) -> how many tokens of the whole prompt, laid out and tokenized, belong to the segment."""
    inserted: Mapping[str, int]
    """How many tokens each earlier condition inserted into this prompt."""
    limit: int | None = None
    """The model's context length in tokens."""
    others: Callable[[], Sequence[Sequence[Piece]]] = tuple
    """() -> the pieces of the study's other prompts, those of other clusters if there are any."""


class PromptEdit(Spec):
    """One change to a prompt.

    The class's docstring is its meaning in the docs; its fields are its keys in a study file, one of them `key`.
    """

    key: ClassVar[str]
    """The field that names it."""
    may_insert: ClassVar[bool] = True
    """Whether it can put text into the segment `inserted`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        if getattr(cls, "key", None) not in cls.model_fields or not (cls.__doc__ or "").strip():
            raise ValueError(f"prompt edit {cls.__name__}: it needs a docstring and a field named by its key")
        clash = [name for name in cls.model_fields if name in TAKEN]
        if clash:
            raise ValueError(f"prompt edit {cls.__name__}: '{clash[0]}' is a key of every condition")

    @property
    def is_random(self) -> bool:
        """Whether other random numbers would give another prompt; only then it can be drawn again as a placebo."""
        return False

    def problems(self, layout: Layout) -> Iterator[EditProblem]:
        """Problems with prompts of this layout; none by default."""
        yield from ()

    def named_segments(self) -> Iterator[tuple[str, str]]:
        """The segments that some prompt must have, each after the study-file key that names it; none by default."""
        yield from ()

    def named_fields(self) -> Iterator[tuple[str, str]]:
        """The fields that some prompt must have a text in, in the same way; none by default."""
        yield from ()

    def apply(self, lines: Lines, context: EditContext) -> Lines:
        """The edited prompt. New text goes into pieces of the segment `inserted`, or of a new segment."""
        raise NotImplementedError


def source_problem(key: str, source: Source, layout: Layout) -> Iterator[EditProblem]:
    """For `problems`: a source that copies a segment which it can't."""
    layout = replace(layout, inserted=False)  # sources copy what prompts have before any edit
    problems = list(segment_problem(key, source.segment or "", layout))
    yield from problems
    if not problems and source.of_field and source.segment not in layout.fields:
        what = f"{source.key} copies whole fields, and '{source.segment}' is none"
        yield EditProblem(key, what, near(source.segment, layout.fields))


def repeated_problem(key: str, selector: str, layout: Layout) -> Iterator[EditProblem]:
    """For `problems`: a segment that has no single place, as the layout has it more than once."""
    name = selector.partition("[")[0]
    if layout.times(name) > 1:
        what = f"segment '{name}' occurs {layout.times(name)} times in the {layout.key} layout"
        yield EditProblem(key, what, "a segment that occurs once")


def segment_problem(key: str, selector: str, layout: Layout) -> Iterator[EditProblem]:
    """For `problems`: a selector that can't be read, or that no prompt of the layout can have."""
    problem = selector_problem(selector)
    if problem is not None:
        yield EditProblem(key, f"{problem} in '{selector}'", SELECTORS)
        return
    name = Selector.of(selector).name
    if not layout.may_have(name):
        yield EditProblem(key, f"the {layout.key} layout has no segment '{name}'", near(name, layout.segments))
