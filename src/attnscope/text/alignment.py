"""Alignment: which token of an edited prompt is which token of the base prompt.

Texts are matched, not tokens: an inserted span is cut out, what remains must be the base text, and a token of the
edited prompt is the base's token only if both cover the same characters and have the same id. A token that the
insertion made merge with its neighbour has no counterpart and is reported as re-merged, never matched to the nearest.
Between models whose tokenizers differ, values are carried over by character.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from attnscope.text.segments import ANSWER, INSERTED, TEMPLATE, Text
from attnscope.text.tokens import Token

Places = NDArray[np.int64]
"""(tokens, 2): the first character of each token and the one after its last."""


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


def carry_over(tokens: Places, text: Text, onto: Places, onto_text: Text) -> tuple[Any, NDArray[np.bool_]]:
    """How tokens of one tokenizer share out over another's, by the characters of the segments that both texts have.

    Returns a sparse (tokens, onto) matrix: row by row the share of a token's characters that each token of the other
    covers, so that `values @ matrix` carries values over and no sum grows; and for each token of the other whether all
    its characters have a counterpart. What a template or an insertion adds has none.
    """
    here, there = _shared_characters(text, onto_text)
    size = int(max(here.max(initial=-1), there.max(initial=-1))) + 1
    given = _on_characters(tokens, here, size)
    taken = _on_characters(onto, there, size)
    lengths = np.maximum(1, tokens[:, 1] - tokens[:, 0])
    owners = np.maximum(1, np.asarray(taken.sum(0)).ravel())  # a character may be cut into several tokens
    matrix = sparse.diags_array(1 / lengths) @ given @ sparse.diags_array(1 / owners) @ taken.T
    held = np.asarray(given.sum(0)).ravel() > 0
    width = onto[:, 1] - onto[:, 0]
    return matrix.tocsr(), (taken @ held == width) & (width > 0)


def _on_characters(tokens: Places, numbers: NDArray[np.int64], size: int) -> Any:
    """(tokens, shared characters): 1 where a token covers a character."""
    rows = np.repeat(np.arange(len(tokens)), tokens[:, 1] - tokens[:, 0])
    columns = np.concatenate([numbers[start:end] for start, end in tokens]) if len(tokens) else rows
    shared = columns >= 0
    return sparse.csr_array(
        (np.ones(int(shared.sum())), (rows[shared], columns[shared])), shape=(len(tokens), max(1, size))
    )


def _shared_characters(one: Text, two: Text) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each character of both texts its number among those they share, or -1. A template may trim a segment."""
    numbers = (np.full(len(one.text), -1), np.full(len(two.text), -1))
    done = 0
    both = {span.segment for span in one.spans} & {span.segment for span in two.spans}
    for segment in sorted(both - {TEMPLATE, INSERTED, ANSWER}):
        said, again = one.of(segment), two.of(segment)
        longer, shorter = (said, again) if len(said) >= len(again) else (again, said)
        lead = longer.find(shorter)
        if lead < 0:
            continue  # another text under the same name
        for text, held, into in ((one, said, numbers[0]), (two, again, numbers[1])):
            offset = lead if len(held) < len(longer) else 0
            places = [place for span in text.spans if span.segment == segment for place in range(span.start, span.end)]
            into[places] = done + offset + np.arange(len(places))
        done += len(longer)
    return numbers


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
