"""What is wanted of an attention call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnscope.attention.blame import blamed, shaped
from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.measures import MEASURES, Measure, TokenIds
from attnscope.measures.received import RECEIVED
from attnscope.models.memory import is_out_of_memory

FEW = 8  # rows are few if they are at most one in so many


@dataclass(frozen=True)
class PairSet:
    """The pairs of one measure in one prompt, sorted by row: a row's number among those read, and a key's position."""

    rows: Tensor
    keys: Tensor

    def to(self, device: torch.device) -> PairSet:
        return PairSet(self.rows.to(device), self.keys.to(device))


def pair_set(measure: Measure, ids: Sequence[int], positions: Tensor, places: Sequence[int] | None = None) -> PairSet:
    """The pairs of one prompt. positions (rows,): of the rows that are read, increasing.

    places: which of the ids are the prompt's, where pads are among them.
    """
    if places is None:
        queries, keys = _pairs(measure, ids)
    else:
        among = torch.as_tensor(places, dtype=torch.int64)
        queries, keys = (among[each] for each in _pairs(measure, [ids[place] for place in places]))
    wanted = positions.cpu()
    if not len(wanted):
        return PairSet(queries[:0], keys[:0])
    place = torch.searchsorted(wanted, queries).clamp(max=len(wanted) - 1)
    known = wanted[place] == queries
    return PairSet(place[known], keys[known])


def _pairs(measure: Measure, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys, sorted; refused unless each pair is one of the prompt's and occurs once."""
    if measure.pairs is None:
        raise ValueError(f"{measure.name} has no pairs")
    with blamed(measure, "pairs"):
        queries, keys = (torch.as_tensor(each) for each in measure.pairs(ids))
    allowed = f"two arrays of positions from 0 to {len(ids) - 1}, one pair per element, each pair once"
    if queries.dim() != 1 or queries.shape != keys.shape:
        what = f"returns arrays of shapes {tuple(queries.shape)} and {tuple(keys.shape)}"
        raise MEASURES.mistake(measure.name, "pairs", what, allowed)
    if not len(queries):
        return queries.long(), keys.long()
    for each in (queries, keys):
        if each.is_floating_point() or each.is_complex() or each.dtype == torch.bool:
            raise MEASURES.mistake(measure.name, "pairs", f"returns positions of type {each.dtype}", allowed)
        if int(each.min()) < 0 or int(each.max()) >= len(ids):
            raise MEASURES.mistake(measure.name, "pairs", "returns positions outside the prompt", allowed)
    places = (queries.long() * len(ids) + keys.long()).sort().values
    if bool((places[1:] == places[:-1]).any()):
        raise MEASURES.mistake(measure.name, "pairs", "returns the same pair twice", allowed)
    return places // len(ids), places % len(ids)


def token_ids(ids: Sequence[int] | None, keys: int, places: Sequence[int] | None, device: torch.device) -> TokenIds:
    """The tokens of one prompt by the position of their key; -1 everywhere if they are not known.

    places: which of the ids are the prompt's, where pads are among them.
    """
    at, following = (torch.full((keys,), -1, dtype=torch.int64) for _ in range(2))
    if ids is not None:
        among = torch.arange(len(ids)) if places is None else torch.as_tensor(places, dtype=torch.int64)
        tokens = torch.as_tensor(list(ids), dtype=torch.int64)[among]
        at[among], following[among[:-1]] = tokens, tokens[1:]
    return TokenIds(at.to(device), following.to(device))


@dataclass(frozen=True)
class Ask:
    """What a backend is to compute: for which rows, in which query groups, by which measures.

    weights (B, m, rows): each group's share of each row; a group's shares sum to one.
    """

    weights: Tensor
    rows: Tensor
    """(rows,): the numbers of the queries that are read, increasing."""
    output: bool = True
    """Whether the attention output of every query is needed too."""
    measures: tuple[Measure, ...] = (RECEIVED,)
    pairs: dict[str, list[PairSet]] = field(default_factory=dict)
    """By name of a measure with pairs: one set per prompt."""
    ids: Sequence[TokenIds] = ()
    """Of each prompt, if a measure needs them."""
    edit: WeightsEdit | None = None
    """Changes the weights after softmax, before anything is computed from them."""

    @property
    def groups(self) -> int:
        return self.weights.shape[1]

    @property
    def plain(self) -> bool:
        """Whether attention received is all that is wanted."""
        return self.edit is None and all(each is RECEIVED for each in self.measures)

    def few(self, queries: int) -> bool:
        return len(self.rows) * FEW <= queries


@dataclass(frozen=True)
class WeightsEdit:
    """Edits of the attention weights of one layer: for each prompt, in order. See `edits.attention`."""

    layer: int
    edits: tuple[tuple[AttentionEdit, ...], ...]
    gone: int = 0
    """How many of the text's first keys a cache has let go of; edits count from the text's first token."""

    def __call__(self, weights: Tensor, prompt: int, heads: range, q: Tensor, k: Tensor) -> Tensor:
        """Weights (heads, rows, keys) of a prompt -> the changed ones."""
        for edit in self.edits[prompt]:
            with ATTENTION_EDITS.blamed(edit.key, "weights", excused=is_out_of_memory):
                changed = edit.weights(weights, self.layer, heads, q + self.gone, k + self.gone)
            weights = shaped(ATTENTION_EDITS, edit.key, "weights", changed, weights.shape)
        return weights
