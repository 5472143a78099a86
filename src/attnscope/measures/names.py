"""What a heat map of heads can show besides classes: names, and a few words for each."""

from __future__ import annotations

from attnscope.measures import HEAD, MEASURES
from attnscope.measures.patterns import PATTERNS

SINK, UNIFORM = "sink", "uniform"
SCORES = (SINK, *PATTERNS, UNIFORM)
"""Scores of common kinds of heads; sink and uniform follow from `received`."""
KEPT, MOVED, TAKEN = "kept", "moved", "taken"
OF_INSERTIONS = (KEPT, MOVED, TAKEN)
_TITLES = {
    SINK: "attention on the first token",
    UNIFORM: "similarity to uniform attention",
    KEPT: "share of attention that shared tokens keep",
    MOVED: "share of what is left that moved to other tokens",
    TAKEN: "attention on inserted tokens",
}


def head_measures() -> list[str]:
    """The registered measures with one number per head."""
    return [name for name, measure in MEASURES.members.items() if measure.axes == HEAD]


def map_measures() -> list[str]:
    """Everything a heat map of heads can show, besides classes."""
    others = [name for name in head_measures() if name not in SCORES]
    return [*others, *SCORES, *OF_INSERTIONS]


def title_of(name: str) -> str | None:
    """A few words for axes and menus; None for names that are no measure of heads, such as a class."""
    if name in _TITLES:
        return _TITLES[name]
    return MEASURES.members[name].title if name in head_measures() else None
