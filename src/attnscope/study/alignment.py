"""Alignment: which token of an edited prompt is which token of the base prompt.

Texts are matched, not tokens: an inserted span is cut out, what remains must be the base text, and a token of the
edited prompt is the base's token only if both cover the same characters and have the same id. A token that the
insertion made merge with its neighbour has no counterpart and is reported as re-merged, never matched to the nearest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.study.segments import INSERTED, Text
from attnscope.study.tokens import Token


@dataclass(frozen=True)
class Alignment:
    """base[position]: the base token's position, or None."""

    base: tuple[int | None, ...]
    inserted: tuple[int, ...]
    """Positions whose characters are all inserted."""
    remerged: tuple[int, ...]
    """Positions of base text that have no counterpart: the tokenizer cut the text otherwise there."""
    lost: tuple[int, ...]
    """Base positions that have no counterpart here."""


def align(edited: Text, tokens: Sequence[Token], base: Text, base_tokens: Sequence[Token]) -> Alignment | None:
    """None if the edited text without its inserted spans is not the base text (a template that reacts to length)."""
    kept, places = _base_places(edited)
    if "".join(character for character, stays in zip(edited.text, kept, strict=True) if stays) != base.text:
        return None
    known = {_key(group, turn): group for group, turn in _clusters(base_tokens)}
    found: list[int | None] = []
    inserted, remerged = [], []
    for group, turn in _clusters(tokens):
        start, end = group[0].start, max(token.end for token in group)
        staying = kept[start:end]
        places_of_group = [token.position for token in group]
        if end > start and not staying.any():
            inserted += places_of_group
            match = None
        else:
            whole = staying.all()  # characters that the insertion parts stay too, but are no neighbours in the text
            match = known.get(_key(group, turn, int(places[start]) - start)) if whole else None
            remerged += [] if match else places_of_group
        found += [None] * len(group) if match is None else [token.position for token in match]
    here = {place for place in found if place is not None}
    lost = tuple(token.position for token in base_tokens if token.position not in here)
    return Alignment(tuple(found), tuple(inserted), tuple(remerged), lost)


def carry_over(
    tokens: Sequence[tuple[str, int, int]], values: NDArray[np.float64], onto: Sequence[tuple[str, int, int]]
) -> NDArray[np.float64]:
    """Values of one tokenizer's tokens, shared out by characters over another tokenizer's tokens of the same text.

    Tokens are (segment, start, end) within their segment. What falls on no token of the other is lost, so the sum can
    only shrink; values (..., tokens).
    """
    found = np.zeros((*values.shape[:-1], len(onto)))
    for number, (segment, start, end) in enumerate(tokens):
        for other, (name, low, high) in enumerate(onto):
            overlap = min(end, high) - max(start, low)
            if name == segment and overlap > 0:
                found[..., other] += values[..., number] * overlap / (end - start)
    return found


def _base_places(edited: Text) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """For each character whether it is in the base text, and how many base characters are before it (and the end)."""
    kept = np.ones(len(edited.text), dtype=bool)
    for span in edited.spans:
        if span.segment == INSERTED:
            kept[span.start : span.end] = False
    return kept, np.concatenate([[0], np.cumsum(kept)])


Key = tuple[int, tuple[tuple[int, int, int], ...]]


def _clusters(tokens: Sequence[Token]) -> Iterator[tuple[list[Token], int]]:
    """Tokens by the characters they share, with how many marks of no width were at that place before.

    Most are alone; the several tokens of one character are told apart by nothing but their order, so they are matched
    together or not at all.
    """
    groups: list[list[Token]] = []
    end = 0
    for token in tokens:
        if groups and token.start < end and token.end > token.start:
            groups[-1].append(token)
        else:
            groups.append([token])
        end = max(end, token.end)
    turns: Counter[Key] = Counter()
    for group in groups:
        plain = _key(group, 0)
        yield group, turns[plain]
        turns[plain] += 1


def _key(group: Sequence[Token], turn: int, shift: int = 0) -> Key:
    return turn, tuple((token.id, token.start + shift, token.end + shift) for token in group)
