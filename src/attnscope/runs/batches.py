"""Batches: prompts of similar length together, as many as fit into free memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PADDING = 0.06  # at most this share of a batch's tokens
WRITTEN = 0.5  # of the tokens that are read before answers are written together, which saves more than the pads cost
ENOUGH = {"cpu": 2048}  # tokens that already keep a device busy; more only cost memory
ENOUGH_ELSEWHERE = 16384
SHARE = 0.5  # of free memory


@dataclass(frozen=True)
class Budget:
    """How many tokens a batch may have, padding included, and which share of them may be padding."""

    tokens: int
    padding: float = PADDING


def budget(free_bytes: int, bytes_per_token: int, device: str, padding: float = PADDING) -> Budget:
    """What fits into half of the free memory, but no more than keeps the device busy."""
    fits = int(free_bytes * SHARE / max(1, bytes_per_token))
    return Budget(max(1, min(fits, ENOUGH.get(device.split(":")[0], ENOUGH_ELSEWHERE))), padding)


def bytes_per_token(hidden: int, intermediate: int, heads: int, width: int, layers: int, groups: int, size: int) -> int:
    """Peak memory of a forward pass per token.

    The residual stream and its norm, queries, keys, values and the attention's output, the three tensors of a gated MLP
    (in the model's dtype, `size` bytes); and what every layer stores: attention received, per head and query group.
    """
    passing = 4 * hidden + 4 * heads * width + 3 * intermediate
    return passing * size + layers * heads * groups * 4


def bytes_in_cache(heads: int, width: int, layers: int, size: int) -> int:
    """Memory of one token while answers are written: a key and a value in every layer."""
    return 2 * heads * width * layers * size


def batches(lengths: Sequence[int], limit: Budget) -> list[list[int]]:
    """The prompts of each batch, by number; the longest first, so that a batch that does not fit fails early."""
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    grouped: list[list[int]] = []
    real = 0
    for number in order:
        longest = lengths[grouped[-1][0]] if grouped else 0
        padded = longest * (len(grouped[-1]) + 1) if grouped else 0
        if grouped and padded <= limit.tokens and padded - (real + lengths[number]) <= limit.padding * padded:
            grouped[-1].append(number)
            real += lengths[number]
        else:
            grouped.append([number])
            real = lengths[number]
    return grouped
