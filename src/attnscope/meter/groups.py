"""Query groups as row weights: whose gaze is averaged, and how much each row counts.

Every group's weights sum to one over a prompt's rows; pads have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from attnscope.errors import AttnscopeError, near

NAMED = ("last", "all")

Rows = Sequence[int]
"""A group of the caller's own: the positions of its queries."""


def row_weights(
    queries: Sequence[str], real: Tensor, own: Sequence[Mapping[str, Rows]] | None = None, *, first: int = 0
) -> Tensor:
    """Weights (batch, groups, queries) for groups named in `queries`.

    real (batch, queries) is False at pads. `own` gives, for each prompt, the rows of groups that are not `last` or
    `all`. first: the position of the first query, when a cached prefix comes before it.
    """
    weights = torch.zeros(len(real), len(queries), real.shape[1], dtype=torch.float32)
    for prompt, flags in enumerate(real.cpu()):
        places = flags.nonzero()[:, 0]
        for group, name in enumerate(queries):
            if name == "last":
                rows = places[-1:]
            elif name == "all":
                rows = places
            else:
                rows = _own_rows(name, {} if own is None else own[prompt], places, first)
            weights[prompt, group, rows] = 1.0 / len(rows)
    return weights.to(real.device)


def _own_rows(name: str, own: Mapping[str, Rows], places: Tensor, first: int) -> Tensor:
    if name not in own:
        raise AttnscopeError(
            f"unknown query group '{name}'",
            where="queries",
            allowed=near(name, [*NAMED, *own]),
            todo="use one of these, or give the group's positions with rows=",
        )
    wanted = torch.as_tensor(list(own[name]), dtype=torch.int64) - first
    if len(wanted) == 0 or int(wanted.min()) < 0 or int(wanted.max()) >= len(places):
        raise AttnscopeError(
            f"query group '{name}' has no rows, or rows outside the prompt",
            where=f"rows of '{name}'",
            allowed=f"positions {first} to {first + len(places) - 1}",
            todo="give at least one position in that range",
        )
    return places[wanted]
