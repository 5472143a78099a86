"""What a quantity declares: a number per prompt, layer and head, made from the attention that sets of tokens receive.

Maps, trajectories, comparisons, the study file's schema and the docs derive from the declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from attnscope.spec import Spec

Floats = NDArray[np.float64]
Named = tuple[tuple[str | int, ...], str]
"""A name in a study file, after the path to the key that contains it."""


class Shares(Protocol):
    """The attention of one model under one condition from one query group, prompt by prompt.

    Every array is (prompts, layers, heads), with the same prompts; NaN where a prompt has no value.
    """

    def mass(self, token_set: str, measure: str = "received") -> Floats:
        """What a class or set receives, or the sum of another measure over it; NaN where a prompt lacks the set."""

    def weight(self, token_set: str) -> Floats:
        """The mean weight of a token of the set, relative to uniform attention over all that the queries see."""

    def under(self, condition: str) -> Shares:
        """The same prompts under another condition."""

    def series(self, title: str) -> Mapping[int, Shares]:
        """The same prompts from each group of a series, by its number. Some numbers may be missing."""


class Quantity(Spec):
    """One kind of quantity. The class's docstring is its meaning in the docs; its fields are its keys in a study file,
    one of them `key`.
    """

    key: ClassVar[str]
    """The field that names it."""
    unit: ClassVar[str] = "share"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Between which numbers it can lie; intervals, also of differences, are cut accordingly."""
    null: ClassVar[float | None] = None
    """The value that means "nothing there", which maps test every head against; None if there is none."""
    relative: ClassVar[bool] = False
    """Whether it stays the same if a head looks at its sets as before while there are more tokens to look at."""
    source: ClassVar[str] = ""
    """Who defined it, for the docs."""

    label: str | None = Field(None, min_length=1, max_length=80, description="A few words for axes and menus.")

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        if getattr(cls, "key", None) not in cls.model_fields or not (cls.__doc__ or "").strip():
            raise ValueError(f"quantity {cls.__name__}: it needs a docstring and a field named by its key")

    @property
    def limits(self) -> tuple[float, float]:
        """`bounds`, unless they depend on what a study asks for."""
        return self.bounds

    @property
    def title(self) -> str:
        """A few words for axes and menus, if the study gives none."""
        raise NotImplementedError

    @property
    def token_sets(self) -> Iterator[Named]:
        """The classes and sets that it is made from."""
        yield from ()

    @property
    def disjoint(self) -> Iterator[Named]:
        """Those that can't have a token in common, as it would count twice; prompts in which they do are refused."""
        yield from ()

    @property
    def conditions(self) -> Iterator[Named]:
        """Other conditions that it needs."""
        yield from ()

    @property
    def measures(self) -> Iterator[Named]:
        """Measures that it needs, besides `received`."""
        yield from ()

    @property
    def series(self) -> Iterator[Named]:
        """The series of query groups that it needs."""
        yield from ()

    def values(self, shares: Shares) -> Floats:
        """(prompts, layers, heads); NaN where it is undefined."""
        raise NotImplementedError


def ratio(part: Floats, whole: Floats) -> Floats:
    """Part over whole; NaN where the whole is nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, part / whole, np.nan)
