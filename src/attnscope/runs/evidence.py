"""How much evidence a run gathers that its numbers are exact.

The proof compares a model with its own eager attention before the first reading; the spot check compares some of the
run's own prompts, and measures them again in a wider number format to see how far rounding moves their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from attnscope.arguments import text_of
from attnscope.errors import AttnscopeError, Parameter, near

Level = Literal["full", "quick", "none"]
FULL: Level = "full"
QUICK: Level = "quick"
NONE: Level = "none"

LEVELS: dict[Level, str] = {
    FULL: "proof and spot check",
    QUICK: "proof only",
    NONE: "neither: nothing shows that the numbers are exact",
}
"""From the most evidence to the least, with what each has."""
UNPROVEN = "These numbers are unproven: nothing was compared with the model's own attention, so they may be wrong."


def level_of(given: object) -> Level:
    """A level as a caller wrote it; refused if there is none of that name."""
    name = text_of(given, "evidence", "the name of a level, such as 'quick'")
    for level in LEVELS:
        if name == level:
            return level
    raise AttnscopeError(
        f"there is no level of evidence '{name}'",
        where=Parameter("evidence"),
        allowed=near(name, list(LEVELS)),
        todo="use one of these",
    )


def reaches(level: Level, wanted: Level) -> bool:
    """Whether there is as much evidence as wanted."""
    order = list(LEVELS)
    return order.index(level) <= order.index(wanted)


def least(levels: Iterable[Level]) -> Level:
    """The level with the least evidence; full if there are none."""
    return max(levels, key=list(LEVELS).index, default=FULL)
