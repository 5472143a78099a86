"""Attention as shares of what is left when some tokens are left out, such as an attention sink."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST = 1e-4  # of a head's attention: where less is left, shares of the rest would be rounding


def shares_of_rest(attention: NDArray[Any], removed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Attention (..., keys) over what the other keys receive; NaN on keys that are removed (keys,).

    NaN everywhere where hardly anything is left. For several queries this is a ratio of means: what the others receive
    of all that is not on the removed keys.
    """
    numbers = attention.astype(np.float64)
    rest = numbers[..., ~removed].sum(-1, keepdims=True)
    shares = np.divide(numbers, rest, out=np.full(numbers.shape, np.nan), where=rest > LEAST)
    return np.where(removed, np.nan, shares)
