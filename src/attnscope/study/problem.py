"""A problem of a study file and its place, and the problems that any list of names can have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnscope.errors import near


@dataclass(frozen=True)
class Problem:
    """A problem and where it is. at: the path to the key, as in `("models", 0, "label")`."""

    at: tuple[str | int, ...]
    what: str
    allowed: str
    todo: str = "fix the study file"


def duplicates(places: Sequence[tuple[str | int, ...]], specs: Sequence[Any], key: str) -> Iterator[Problem]:
    """Names that are used twice."""
    seen: set[str] = set()
    for at, spec in zip(places, specs, strict=True):
        name = getattr(spec, key)
        if name in seen:
            yield Problem(at, f"'{name}' occurs twice", "each name once")
        seen.add(name)


def shared_labels(places: Sequence[tuple[str | int, ...]], labels: Sequence[str]) -> Iterator[Problem]:
    """Labels that are used twice."""
    for number, (at, label) in enumerate(zip(places, labels, strict=True)):
        if label in labels[:number]:
            yield Problem(at, f"two are labelled '{label}', so figures could not distinguish them", "each label once")


def listed_twice(things: Sequence[object], at: tuple[str | int, ...]) -> Iterator[Problem]:
    """What occurs twice in a list. at: the key of the list."""
    for place, each in enumerate(things):
        if each in things[:place]:
            yield Problem((*at, place), f"'{each}' is listed twice", "each once")


def name_problems(names: Sequence[str], known: Sequence[str], at: tuple[str | int, ...]) -> Iterator[Problem]:
    """Names in a list that are unknown or listed twice. at: the key of the list."""
    for place, name in enumerate(names):
        if name not in known:
            yield Problem((*at, place), f"there is no '{name}' in {at[-1]}", near(name, known))
        elif name in names[:place]:
            yield Problem((*at, place), f"'{name}' is listed twice", "each name once")
