"""Outputs of heads, as a lens reads them from one text and an edit puts them into another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticCustomError

from attnscope.errors import AttnscopeError, Parameter

HeadOutputs = Mapping[int, Mapping[int, NDArray[Any]]]
"""By layer and head: the head's output at each token of a text, before the output projection, (tokens, width)."""


def mean_output(texts: Iterable[HeadOutputs]) -> HeadOutputs:
    """Each head's mean output over the tokens of all texts, as one vector (width,). Every token counts the same."""
    sums: dict[tuple[int, int], NDArray[np.float64]] = {}
    tokens: dict[tuple[int, int], int] = {}
    for text in texts:
        for layer, heads in text.items():
            for head, outputs in heads.items():
                place = layer, head
                sums[place] = sums.get(place, 0) + outputs.sum(0, dtype=np.float64)
                tokens[place] = tokens.get(place, 0) + len(outputs)
    means: dict[int, dict[int, NDArray[np.float64]]] = {}
    for (layer, head), total in sums.items():
        means.setdefault(layer, {})[head] = total / tokens[layer, head]
    return means


def resampled(tokens: int, source: int, rng: Random) -> tuple[int, ...]:
    """For each token of a text, a random one of a source of so many tokens: never its first, but first for first.

    The first token is apart because it is a sink in most models, and what heads give there is like nowhere else.
    """
    if source < 2 <= tokens:
        raise AttnscopeError(
            "the source has no token besides the first to draw from",
            where=Parameter("source"),
            allowed="a text of at least two tokens",
            todo="choose a longer text",
        )
    return (0, *(rng.randrange(1, source) for _ in range(1, tokens)))


def checked_outputs(given: Any) -> dict[int, dict[int, NDArray[Any]]]:
    """For validators: outputs as arrays of finite numbers."""
    if not isinstance(given, Mapping) or not all(isinstance(heads, Mapping) for heads in given.values()):
        raise _wrong("values are not arrays by layer and head")
    return {
        layer: {head: _array(values, layer, head) for head, values in heads.items()} for layer, heads in given.items()
    }


def _array(given: Any, layer: int, head: int) -> NDArray[Any]:
    where = f"of layer {layer} head {head}"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):  # of different lengths, say
        array = np.asarray(None)
    if array.dtype.kind not in "fiu":
        raise _wrong(f"the values {where} are not numbers")
    if array.ndim not in (1, 2) or not array.size:
        raise _wrong(f"the values {where} have the shape {array.shape}")
    if not np.isfinite(array).all():
        raise _wrong(f"some values {where} are not finite")
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


def _wrong(what: str) -> PydanticCustomError:
    allowed = "by layer and head an array (tokens, width) of finite numbers, or one vector (width,) for every token"
    return PydanticCustomError("one_of", "{what}: {near}", {"what": what, "near": allowed})
