"""Batches: prompts of like length together, as many as fit the memory that is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PADDING = 0.06  # of a batch's tokens at most
ENOUGH = {"cpu": 2048}  # tokens that already keep a device busy; more only cost memory
ENOUGH_ELSEWHERE = 16384
SHARE = 0.5  # of free memory


@dataclass(frozen=True)
class Budget:
    """Tokens a batch may have, pads included."""

    tokens: int


def budget(free_bytes: int, bytes_per_token: int, device: str) -> Budget:
    """What fits half of the free memory, and no more than keeps the device busy."""
    fits = int(free_bytes * SHARE / max(1, bytes_per_token))
    return Budget(max(1, min(fits, ENOUGH.get(device.split(":")[0], ENOUGH_ELSEWHERE))))


def bytes_per_token(hidden: int, intermediate: int, heads: int, width: int, layers: int, groups: int, size: int) -> int:
    """What a forward holds for one token at its worst moment.

    The residual stream and its norm, queries, keys, values and the attention's output, the three tensors of a gated MLP
    (in the model's dtype, `size` bytes); and what is kept of every layer: received by each head for each group.
    """
    passing = 4 * hidden + 4 * heads * width + 3 * intermediate
    return passing * size + layers * heads * groups * 4


def batches(lengths: Sequence[int], limit: Budget) -> list[list[int]]:
    """Numbers of prompts by batch, the longest first, so that what doesn't fit is known early."""
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    made: list[list[int]] = []
    real = 0
    for number in order:
        longest = lengths[made[-1][0]] if made else 0
        padded = longest * (len(made[-1]) + 1) if made else 0
        if made and padded <= limit.tokens and padded - (real + lengths[number]) <= PADDING * padded:
            made[-1].append(number)
            real += lengths[number]
        else:
            made.append([number])
            real = lengths[number]
    return made
