"""Heads by layer, as edits name them: `{8: [0, 3], 9: [1]}`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Annotated

from pydantic import AfterValidator, Field

from attnscope.edits.attention.edit import Number, Numbers, each_once


def _each_once(given: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    return {layer: each_once(heads) for layer, heads in sorted(given.items())}


HeadsByLayer = Annotated[dict[Number, Numbers], Field(min_length=1), AfterValidator(_each_once)]


def as_many_others(
    named: Mapping[int, Collection[int]], among: Mapping[int, Collection[int]], rng: Random
) -> dict[int, tuple[int, ...]] | None:
    """As many other heads of each layer, drawn at random among these; None where a layer has too few."""
    drawn: dict[int, tuple[int, ...]] = {}
    for layer, heads in named.items():
        others = [head for head in among[layer] if head not in heads]
        if len(others) < len(heads):
            return None
        drawn[layer] = tuple(sorted(rng.sample(others, len(heads))))
    return drawn
