"""Measures applied to attention weights: to blocks of rows while a model runs, or to a whole matrix for the proof."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnscope.attention.ask import Ask, PairSet
from attnscope.attention.blame import blamed, checked
from attnscope.measures import KEY, Measure, TokenIds
from attnscope.measures.measure import Block


def reduce_block(
    ask: Ask,
    values: dict[str, Tensor],
    weights: Tensor,
    *,
    prompt: int,
    heads: slice,
    rows: tuple[int, int],
    keys: tuple[int, int],
    positions: Tensor,
    groups: Tensor | None = None,
) -> None:
    """Add a block's part to each measure's total. weights (heads, rows, keys); values: (B, H, m[, keys]) by name.

    groups: those that have some of the rows; None for all of them.
    """
    (start, stop), (first, last) = rows, keys
    mine = slice(None) if groups is None else groups
    share = ask.weights[prompt, mine, start:stop].to(weights)  # (m, rows)
    q, k = positions[start:stop], torch.arange(first, last, device=weights.device)
    for measure in ask.measures:
        if measure.pairs is not None:
            row_values = pair_sums(weights, ask.pairs[measure.name][prompt], start, first)
        else:
            row_values = row_values_of(measure.block, measure, weights, q, k, ids_of(ask, prompt))
        total = values[measure.name][prompt, heads]
        if measure.axes == KEY:
            total[:, mine, first:last] += share @ row_values
        else:
            total[:, mine] += row_values @ share.t()


def row_values_of(
    rule: Block | None, measure: Measure, weights: Tensor, q: Tensor, k: Tensor, ids: TokenIds | None
) -> Tensor:
    """A measure's rule, its block or its uniform, applied to a block, with a check of what it returns.

    Rows that have no value are 0.
    """
    if rule is None:
        raise ValueError(f"{measure.name} has no block")
    part = "uniform" if rule is measure.uniform else "block"
    with blamed(measure, part):
        values = rule(weights, q, k, ids) if measure.needs_ids else rule(weights, q, k)
    values = checked(measure, part, values, _rows_of(measure, weights)).to(weights.dtype)
    return _of_valued_rows(measure, values, q, ids)


def ids_of(ask: Ask, prompt: int) -> TokenIds | None:
    """A prompt's tokens, if a measure needs them."""
    return ask.ids[prompt] if ask.ids else None


def valued_rows(measure: Measure, q: Tensor, ids: TokenIds | None) -> Tensor | None:
    """(rows,): whether a query at these positions has a value; None if all have one. Not for measures with pairs."""
    if not measure.needs_next:
        return None
    if ids is None:
        raise ValueError(f"{measure.name} needs to know which token comes next")
    following: Tensor = ids.following[q]
    return following >= 0


def _of_valued_rows(measure: Measure, values: Tensor, q: Tensor, ids: TokenIds | None) -> Tensor:
    """Values (heads, rows[, keys]) with 0 in rows that have none."""
    valued = valued_rows(measure, q, ids)
    if valued is None:
        return values
    return values.masked_fill(~(valued[:, None] if values.dim() == 3 else valued), 0)


def _rows_of(measure: Measure, weights: Tensor) -> torch.Size:
    """The shape of a measure's values for weights (heads, rows, keys)."""
    return weights.shape if measure.axes == KEY else weights.shape[:2]


def pair_sums(weights: Tensor, pairs: PairSet, start: int, first: int) -> Tensor:
    """(heads, rows): each row's attention on its pairs' keys. The block begins at row `start` and key `first`."""
    heads, rows, keys = weights.shape
    low, high = (int(torch.searchsorted(pairs.rows, place)) for place in (start, start + rows))
    row, key = pairs.rows[low:high] - start, pairs.keys[low:high] - first
    inside = (key >= 0) & (key < keys)
    row, key = row[inside], key[inside]
    sums = torch.zeros(heads, rows, dtype=weights.dtype, device=weights.device)
    return sums.index_add_(1, row, weights[:, row, key])


def reduce_matrix(ask: Ask, matrix: Tensor, positions: Tensor) -> dict[str, Tensor]:
    """By measure, (B, H, m[, keys]): from whole matrices (B, H, Sq, Sk), by the declared references.

    positions (rows,): of the rows that are read, among the keys.
    """
    share = ask.weights.to(matrix)  # (B, m, rows)
    used = (share != 0).any(1)[:, None]  # (B, 1, rows); what other rows hold does not count, not even if it is NaN
    values = {}
    for measure in ask.measures:
        row_values = row_references(measure, ask, matrix, positions)
        if measure.axes == KEY:
            values[measure.name] = share[:, None] @ row_values.masked_fill(~used[..., None], 0)
        else:
            values[measure.name] = (row_values.masked_fill(~used, 0)[:, :, None] * share[:, None]).sum(-1)
    return values


def row_references(measure: Measure, ask: Ask, matrix: Tensor, positions: Tensor) -> Tensor:
    """(B, H, rows[, keys]): the reference's value of every row that is read."""
    if measure.pairs is not None:
        sets = ask.pairs[measure.name]
        return torch.stack([_pairs_of_matrix(each[:, ask.rows], sets[prompt]) for prompt, each in enumerate(matrix)])
    prompts = []
    for prompt, each in enumerate(matrix):
        ids = ids_of(ask, prompt)
        prompts.append(_of_valued_rows(measure, _referred(measure, each, ids)[:, ask.rows], positions, ids))
    return torch.stack(prompts)


def _pairs_of_matrix(matrix: Tensor, pairs: PairSet) -> Tensor:
    """(heads, rows): by a matrix of flags, unlike `pair_sums`."""
    chosen = torch.zeros(matrix.shape[1:], dtype=matrix.dtype, device=matrix.device)
    chosen.index_put_((pairs.rows, pairs.keys), chosen.new_ones(len(pairs.rows)), accumulate=True)
    return (matrix * chosen).sum(-1)


def _referred(measure: Measure, matrix: Tensor, ids: TokenIds | None) -> Tensor:
    if measure.reference is None:
        raise ValueError(f"{measure.name} has no reference")
    with blamed(measure, "reference"):
        values = measure.reference(matrix, ids) if measure.needs_ids else measure.reference(matrix)
    return checked(measure, "reference", values, _rows_of(measure, matrix)).to(matrix.dtype)


def over_defined(sums: NDArray[Any], share: NDArray[Any]) -> NDArray[Any]:
    """The mean over the queries that have a value, of sums over all queries; 0 where none has one.

    sums (..., queries[, keys]); share (..., queries): of the queries that have one.
    """
    counted = np.where(share > 0, share, 1)
    mean: NDArray[Any] = sums / (counted if sums.ndim == counted.ndim else counted[..., None])
    return mean


def unsettled_rows(measure: Measure, matrix: Tensor, rounding: float) -> Tensor:
    """(heads, queries): rows of a matrix whose value rounding could change by more than rounding."""
    if measure.unsettled is None:
        raise ValueError(f"{measure.name} has no unsettled")
    with blamed(measure, "unsettled"):
        flags = measure.unsettled(matrix, rounding)
    return checked(measure, "unsettled", flags, matrix.shape[:2])
