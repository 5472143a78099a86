"""Names of what heads can be mapped by, besides classes, and a few words for each."""

from __future__ import annotations

from attnscope.measures import HEAD, MEASURES
from attnscope.measures.patterns import PATTERNS

SINK, UNIFORM = "sink", "uniform"
SCORES = (SINK, *PATTERNS, UNIFORM)
"""Of the kinds of head anyone looks for first; sink and uniform follow from what every key receives."""
KEPT, MOVED, TAKEN = "kept", "moved", "taken"
OF_INSERTIONS = (KEPT, MOVED, TAKEN)
_TITLES = {
    SINK: "attention on the first token",
    UNIFORM: "likeness to uniform attention",
    KEPT: "share of attention that shared tokens keep",
    MOVED: "share of what is left that moved to other tokens",
    TAKEN: "attention on inserted tokens",
}


def head_measures() -> list[str]:
    """The registered measures with one number per head."""
    return [name for name, measure in MEASURES.members.items() if measure.axes == HEAD]


def map_measures() -> list[str]:
    """Everything a map of heads can show, besides classes."""
    others = [name for name in head_measures() if name not in SCORES]
    return [*others, *SCORES, *OF_INSERTIONS]


def title_of(name: str) -> str | None:
    """A few words for axes and menus; None for what no map shows under its own name, such as a class."""
    if name in _TITLES:
        return _TITLES[name]
    return MEASURES.members[name].title if name in head_measures() else None
