"""Sentences that say nothing about the prompt: `insert: {sentence: random}`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from attnscope.edits.sources.source import Source, SourceContext

_PATTERN = ("the", "quality", "thing", "deed", "the", "thing", "where", "the", "quality", "thing")
_WORDS = {
    "the": ["the", "a", "this", "every", "some", "another"],
    "quality": ["old", "quiet", "wooden", "narrow", "yellow", "distant", "heavy", "gentle", "early", "warm", "round"],
    "thing": [
        *("gardener", "river", "window", "bicycle", "letter", "kitchen", "mountain", "clock", "neighbour", "basket"),
        *("harbour", "painter", "train", "blanket", "orchard", "lantern", "teacher", "meadow", "violin", "market"),
    ],
    "deed": ["follows", "carries", "watches", "repairs", "remembers", "crosses", "paints", "covers", "finds", "opens"],
    "where": ["near", "behind", "above", "beside", "under", "beyond", "across", "before", "after"],
}


class Sentence(Source):
    """Plain English sentences from a small grammar; a unit is a word. A cut sentence still ends with a full stop."""

    key: ClassVar[str] = "sentence"
    random: ClassVar[bool] = True

    sentence: Literal["random"] = Field(description="Sentences made at random from a small grammar.")

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        words = list(islice(_stream(rng), units))
        return " ".join(words).rstrip(".") + "." if words else ""


def _stream(rng: Random) -> Iterator[str]:
    while True:
        words = [rng.choice(_WORDS[kind]) for kind in _PATTERN]
        words[0] = words[0].capitalize()
        words[-1] += "."
        yield from words
