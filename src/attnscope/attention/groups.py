"""Query groups as row weights: whose attention is averaged, and how much each row counts.

Every group's weights sum to one over a prompt's rows; pads have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from attnscope.arguments import listed, whole_number
from attnscope.errors import AttnscopeError, Parameter, near

NAMED = ("last", "all")

Rows = Sequence[int]
"""A group of the caller's own: the positions of its queries."""


def row_weights(
    queries: Sequence[str], real: Tensor, own: Sequence[Mapping[str, Rows]] | None = None, *, partial: bool = False
) -> Tensor:
    """Weights (batch, groups, queries) for groups named in `queries`.

    real (batch, queries) is False at pads. `own` gives, for each prompt, the rows of groups that are not `last` or
    `all`. partial: a prompt may lack a group, whose weights are then zero.
    """
    refuse_group_names(queries)
    unused = [name for each in own or () for name in each if name not in queries]
    if unused:
        raise AttnscopeError(
            f"rows are given for a group '{unused[0]}' that is not among the queries",
            where=Parameter("rows"),
            allowed=f"groups named in queries: {', '.join(queries)}",
            todo="name it in queries too",
        )
    weights = torch.zeros(len(real), len(queries), real.shape[1], dtype=torch.float32)
    for prompt, flags in enumerate(real.cpu()):
        places = flags.nonzero()[:, 0]
        for group, name in enumerate(queries):
            if name == "last":
                rows = places[-1:]
            elif name == "all":
                rows = places
            elif partial and own is not None and name not in own[prompt]:
                continue
            else:
                rows = _own_rows(name, {} if own is None else own[prompt], places)
            weights[prompt, group, rows] = 1.0 / max(1, len(rows))
    return weights.to(real.device)


def present(queries: Sequence[str], own: Mapping[str, Rows] | None) -> list[int]:
    """The places of the groups that a prompt has. own: the rows of its groups that are not `last` or `all`."""
    return [place for place, name in enumerate(queries) if own is None or name in NAMED or name in own]


def refuse_group_names(queries: Sequence[str]) -> None:
    """Refuse to measure no group, or one twice."""
    if not queries or len(set(queries)) < len(queries):
        raise AttnscopeError(
            "query groups are missing or named twice",
            where=Parameter("queries"),
            allowed=f"each group once: {', '.join(NAMED)} or names of your own",
            todo="name at least one",
        )


def _own_rows(name: str, own: Mapping[str, Rows], places: Tensor) -> Tensor:
    if name not in own or set(own) & set(NAMED):
        raise AttnscopeError(
            f"unknown query group '{name}'" if name not in own else "a group of your own has a name that is taken",
            where=Parameter("queries"),
            allowed=near(name, [*NAMED, *own]),
            todo="use one of these, or give the group's positions with rows= under a name of its own",
        )
    try:
        rows = [whole_number(row) for row in listed(own[name]) or ()]
    except TypeError:
        rows = []
    if not rows or len(set(rows)) < len(rows) or not set(rows) <= set(range(len(places))):
        raise AttnscopeError(
            f"query group '{name}' has no rows, the same row twice, or rows outside the prompt",
            where=f"rows of '{name}'",
            allowed=f"positions 0 to {len(places) - 1}, each once",
            todo="name at least one position in that range, by a whole number",
        )
    return places[torch.as_tensor(rows)]
