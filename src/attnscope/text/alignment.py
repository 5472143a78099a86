"""Alignment: which token of an edited prompt is which token of the base prompt.

Characters are matched, not tokens: each knows which character of the base prompt it is, wherever an edit moved it. A
token of the edited prompt matches a base token only if both cover the same characters and have the same id. A token
that merged with its neighbour because of an edit has no counterpart: it is reported as re-merged, never matched to the
nearest. Between models with different tokenizers, values are carried over by character.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from attnscope.text.segments import ANSWER, FRAME, INSERTED, NEW, TEMPLATE, Text
from attnscope.text.tokens import Token

CharacterRanges = NDArray[np.int64]
"""(tokens, 2): the first character of each token and the one after its last."""


@dataclass(frozen=True)
class Alignment:
    """base[position]: the base token's position, or None."""

    base: tuple[int | None, ...]
    inserted: tuple[int, ...]
    """Positions whose characters are all new."""
    remerged: tuple[int, ...]
    """Positions of base text without a counterpart: the tokenizer split the text differently there."""
    lost: tuple[int, ...]
    """Base positions without a counterpart here."""


def align(edited: Text, tokens: Sequence[Token], base: Text, base_tokens: Sequence[Token]) -> Alignment:
    """Match the tokens of an edited prompt with those of the base prompt."""
    places = base_places(edited, base)
    new = edited.origins == NEW
    base_groups = {_key(group, turn): group for group, turn in _clusters(base_tokens)}
    base_positions: list[int | None] = []
    inserted, remerged = [], []
    for group, turn in _clusters(tokens):
        start, end = group[0].start, max(token.end for token in group)
        positions = [token.position for token in group]
        if end > start and new[start:end].all():
            inserted += positions
            match = None
        else:
            shift = _shift(places, start, end, len(base.text))
            match = None if shift is None else base_groups.pop(_key(group, turn, shift), None)
            remerged += [] if match else positions
        base_positions += [None] * len(group) if match is None else [token.position for token in match]
    matched = {place for place in base_positions if place is not None}
    lost = tuple(token.position for token in base_tokens if token.position not in matched)
    return Alignment(tuple(base_positions), tuple(inserted), tuple(remerged), lost)


def _shift(places: NDArray[np.int64], start: int, end: int, base_length: int) -> int | None:
    """How far from its place in the base text a token stands; None if its characters are no longer together.

    A token of no width stands before the character that follows it, at the ends of the text, or else after the one
    before it.
    """
    if end > start:
        here = places[start:end]
        together = here[0] >= 0 and (here == here[0] + np.arange(end - start)).all()
        return int(here[0]) - start if together else None
    if start in (0, len(places)):
        return 0 if start == 0 else base_length - start
    if places[start] >= 0:
        return int(places[start]) - start
    return int(places[start - 1]) + 1 - start if places[start - 1] >= 0 else None


def base_places(edited: Text, base: Text) -> NDArray[np.int64]:
    """(characters,): where each character of an edited text is in the base text; -1 if it is not there.

    Characters of pieces are found by their origin. Those of the chat template are matched stretch by stretch: in order
    if both texts have the same stretches; otherwise with the stretch before the same piece, or after it, as far as the
    characters agree.
    """
    order = np.argsort(base.origins, kind="stable")
    ordered = base.origins[order]
    found = np.searchsorted(ordered, edited.origins)
    found = np.minimum(found, max(0, len(ordered) - 1))
    known = (edited.origins >= 0) & (len(ordered) > 0)
    places = np.full(len(edited.text), -1, dtype=np.int64)
    if known.any():
        same = known & (ordered[found] == edited.origins)
        places[same] = order[found[same]]
    _match_frames(edited, base, places)
    letters, base_letters = (np.frombuffer(text.text.encode("utf-32-le"), np.uint32) for text in (edited, base))
    agree = np.zeros(len(places), dtype=bool)
    agree[places >= 0] = letters[places >= 0] == base_letters[places[places >= 0]]
    first = np.zeros(len(places), dtype=bool)
    first[np.unique(places, return_index=True)[1]] = True  # a character that an edit copies is the first of its copies
    return np.where(agree & first, places, -1)


def _match_frames(edited: Text, base: Text, places: NDArray[np.int64]) -> None:
    """Fill in where the chat template's characters are in the base text."""
    mine, theirs = _frames(edited), _frames(base)
    texts = [[text.text[start:end] for start, end in frames] for text, frames in ((edited, mine), (base, theirs))]
    if texts[0] == texts[1]:
        for (start, end), (other, _) in zip(mine, theirs, strict=True):
            places[start:end] = np.arange(other, other + end - start)
        return
    taken = np.zeros(len(base.text), dtype=bool)
    starts, ends = ({frame[side]: frame for frame in theirs} for side in (0, 1))
    for start, end in mine:  # the stretch before the same piece, from its end
        following = len(base.text) if end == len(edited.text) else int(places[end])
        _match_from(edited, base, places, taken, ends.get(following), (start, end), backwards=True)
    for start, end in mine:  # what is left, with the stretch after the same piece
        before = 0 if start == 0 else int(places[start - 1]) + 1
        _match_from(edited, base, places, taken, starts.get(before), (start, end), backwards=False)


def _match_from(
    edited: Text,
    base: Text,
    places: NDArray[np.int64],
    taken: NDArray[np.bool_],
    frame: tuple[int, int] | None,
    mine: tuple[int, int],
    *,
    backwards: bool,
) -> None:
    """Match characters of two stretches from one end, as long as they agree and are free."""
    if frame is None:
        return
    here, there = (range(*each)[:: -1 if backwards else 1] for each in (mine, frame))
    for place, other in zip(here, there, strict=False):
        if places[place] >= 0 or taken[other] or edited.text[place] != base.text[other]:
            return
        places[place], taken[other] = other, True


def _frames(text: Text) -> list[tuple[int, int]]:
    """The stretches of the chat template's own characters."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (text.origins == FRAME).astype(np.int8), [0]])))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


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
