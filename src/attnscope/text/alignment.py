"""Alignment: which token of an edited prompt is which token of the base prompt.

Texts are matched, not tokens: inserted spans are cut out, what remains must be the base text, and a token of the edited
prompt matches a base token only if both cover the same characters and have the same id. A token that merged with its
neighbour because of the insertion has no counterpart: it is reported as re-merged, never matched to the nearest.
Between models with different tokenizers, values are carried over by character.
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

CharacterRanges = NDArray[np.int64]
"""(tokens, 2): the first character of each token and the one after its last."""


@dataclass(frozen=True)
class Alignment:
    """base[position]: the base token's position, or None."""

    base: tuple[int | None, ...]
    inserted: tuple[int, ...]
    """Positions whose characters are all inserted."""
    remerged: tuple[int, ...]
    """Positions of base text without a counterpart: the tokenizer split the text differently there."""
    lost: tuple[int, ...]
    """Base positions without a counterpart here."""


def align(edited: Text, tokens: Sequence[Token], base: Text, base_tokens: Sequence[Token]) -> Alignment | None:
    """None if the edited text without its inserted spans is not the base text (the template depends on length)."""
    in_base, places = _base_places(edited)
    if "".join(character for character, stays in zip(edited.text, in_base, strict=True) if stays) != base.text:
        return None
    base_groups = {_key(group, turn): group for group, turn in _clusters(base_tokens)}
    base_positions: list[int | None] = []
    inserted, remerged = [], []
    for group, turn in _clusters(tokens):
        start, end = group[0].start, max(token.end for token in group)
        staying = in_base[start:end]
        places_of_group = [token.position for token in group]
        if end > start and not staying.any():
            inserted += places_of_group
            match = None
        else:
            whole = staying.all()  # characters separated by the insertion stay too, but are no longer adjacent
            match = base_groups.get(_key(group, turn, int(places[start]) - start)) if whole else None
            remerged += [] if match else places_of_group
        base_positions += [None] * len(group) if match is None else [token.position for token in match]
    matched = {place for place in base_positions if place is not None}
    lost = tuple(token.position for token in base_tokens if token.position not in matched)
    return Alignment(tuple(base_positions), tuple(inserted), tuple(remerged), lost)


def carry_over(
    tokens: CharacterRanges, text: Text, onto: CharacterRanges, onto_text: Text
) -> tuple[Any, NDArray[np.bool_]]:
    """How the tokens of one tokenizer map onto another's, by the characters of the segments that both texts have.

    Returns a sparse (tokens, onto) matrix with the share of each token's characters that each token of the other text
    covers, so that `values @ matrix` carries values over and no sum grows; and for each token of the other text,
    whether all its characters have a counterpart. Characters added by a template or an insertion have none.
    """
    numbers, onto_numbers = _shared_characters(text, onto_text)
    size = int(max(numbers.max(initial=-1), onto_numbers.max(initial=-1))) + 1
    given = _on_characters(tokens, numbers, size)
    taken = _on_characters(onto, onto_numbers, size)
    lengths = np.maximum(1, tokens[:, 1] - tokens[:, 0])
    owners = np.maximum(1, np.asarray(taken.sum(0)).ravel())  # a character may be split into several tokens
    matrix = sparse.diags_array(1 / lengths) @ given @ sparse.diags_array(1 / owners) @ taken.T
    covered = np.asarray(given.sum(0)).ravel() > 0
    width = onto[:, 1] - onto[:, 0]
    return matrix.tocsr(), (taken @ covered == width) & (width > 0)


def _on_characters(tokens: CharacterRanges, numbers: NDArray[np.int64], size: int) -> Any:
    """(tokens, shared characters): 1 where a token covers a character."""
    rows = np.repeat(np.arange(len(tokens)), tokens[:, 1] - tokens[:, 0])
    columns = np.concatenate([numbers[start:end] for start, end in tokens]) if len(tokens) else rows
    shared = columns >= 0
    return sparse.csr_array(
        (np.ones(int(shared.sum())), (rows[shared], columns[shared])), shape=(len(tokens), max(1, size))
    )


def _shared_characters(one: Text, two: Text) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each character of both texts, its number among the shared ones, or -1. A template may trim a segment."""
    numbers = (np.full(len(one.text), -1), np.full(len(two.text), -1))
    done = 0
    both = {span.segment for span in one.spans} & {span.segment for span in two.spans}
    for segment in sorted(both - {TEMPLATE, INSERTED, ANSWER}):
        first, second = one.of(segment), two.of(segment)
        longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
        lead = longer.find(shorter)
        if lead < 0:
            continue  # different text under the same name
        for text, content, into in ((one, first, numbers[0]), (two, second, numbers[1])):
            offset = lead if len(content) < len(longer) else 0
            places = [place for span in text.spans if span.segment == segment for place in range(span.start, span.end)]
            into[places] = done + offset + np.arange(len(places))
        done += len(longer)
    return numbers


def _base_places(edited: Text) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """For each character, whether it is in the base text; and how many base characters precede it (and the end)."""
    in_base = np.ones(len(edited.text), dtype=bool)
    for span in edited.spans:
        if span.segment == INSERTED:
            in_base[span.start : span.end] = False
    return in_base, np.concatenate([[0], np.cumsum(in_base)])


Key = tuple[int, tuple[tuple[int, int, int], ...]]


def _clusters(tokens: Sequence[Token]) -> Iterator[tuple[list[Token], int]]:
    """Tokens grouped by shared characters, each with the number of equal groups before it at the same place.

    Most groups have one token. The tokens of one character differ only in their order, so they are matched together or
    not at all. Several groups at one place: special tokens of no width.
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
