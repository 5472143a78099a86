"""What a source of inserted text declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from attnscope.spec import Spec
from attnscope.text.segments import Piece


@dataclass(frozen=True)
class SourceContext:
    """What a source can use: the fields of the prompt, and the words of the model's vocabulary."""

    fields: Mapping[str, str]
    vocabulary: Sequence[str]
    replaced: str = ""
    """The text that the new one takes the place of, if any."""
    others: Callable[[], Sequence[Sequence[Piece]]] = tuple
    """() -> the pieces of the study's other prompts."""


class Source(Spec):
    """Drafts texts of any size.

    The same random numbers give the same text, and a longer text continues the shorter one. The class's
    docstring is its meaning in the docs; its fields are its keys in a study file, one of them `key`.
    """

    key: ClassVar[str]
    """The field that names it."""
    random: ClassVar[bool] = False
    """Whether other random numbers give another text."""
    of_field: ClassVar[bool] = False
    """Whether `segment` has to be a field of the layout."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        if getattr(cls, "key", None) not in cls.model_fields or not (cls.__doc__ or "").strip():
            raise ValueError(f"source {cls.__name__}: it needs a docstring and a field named by its key")

    @property
    def segment(self) -> str | None:
        """The segment of the prompt that it copies, if any."""
        return None

    @property
    def text_field(self) -> str | None:
        """The field of the prompt that it copies, in the layout or not, if any."""
        return None

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        """A text of this many units (repeats, words or tokens, depending on the source)."""
        raise NotImplementedError

    def natural(self, context: SourceContext) -> int | None:
        """How many units it has by default; None if a length must be given."""
        return None

    def whole(self, rng: Random, context: SourceContext) -> str:
        """The text of its default length; empty if it has none."""
        units = self.natural(context)
        return self.draft(units, rng, context) if units else ""

    @property
    def has_length(self) -> bool:
        """Whether it has a default length."""
        return type(self).natural is not Source.natural or type(self).whole is not Source.whole
