"""Tokens that two conditions share are found by their characters, on a real tokenizer and any text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.models.tokenization import Tokenization
from attnscope.text.alignment import CharacterRanges, align, base_places, carry_over
from attnscope.text.classes import membership
from attnscope.text.layout import lay_out
from attnscope.text.segments import INSERTED, Piece, Text, numbered, segments_of
from attnscope.text.tokens import Token

PARTS = [
    "The",
    " cat",
    "s",
    "/",
    "//////",
    " ",
    "\n",
    "\r\n",
    "\t",
    "é",
    "e\u0301",
    "🙂",
    "👩‍👩‍👧",
    "\u200b",
    "\u202e",
    "ß",
    "語",
    "#",
    "*",
    "1",
    "𝔸",
]
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.lists(st.sampled_from(PARTS)).map("".join)
)


@pytest.fixture(scope="module")
def tokenization(smollm2_tokenization: Tokenization) -> Tokenization:
    return smollm2_tokenization


def text_of(before: str, inserted: str, after: str) -> Text:
    one, two = numbered([Piece("a", before), Piece("b", after)])
    return lay_out([(None, [one, Piece(INSERTED, inserted), two])], None)


def tokens_of(tokenization: Tokenization, text: Text) -> list[Token]:
    try:
        return tokenization.tokenize(text.text)
    except AttnscopeError:  # no text, or only characters that this vocabulary has no bytes for
        return []


@settings(deadline=None, max_examples=150)
@given(before=TEXTS, inserted=TEXTS, after=TEXTS)
def test_a_shared_token_has_the_same_id_and_characters_and_none_is_matched_twice(
    tokenization: Tokenization, before: str, inserted: str, after: str
) -> None:
    edited, base = text_of(before, inserted, after), text_of(before, "", after)
    tokens, base_tokens = tokens_of(tokenization, edited), tokens_of(tokenization, base)
    found = align(edited, tokens, base, base_tokens)
    matched = [place for place in found.base if place is not None]
    assert len(set(matched)) == len(matched)
    assert matched == sorted(matched)
    assert sorted([*matched, *found.lost]) == list(range(len(base_tokens)))
    for token, place in zip(tokens, found.base, strict=True):
        if place is not None:
            other = base_tokens[place]
            assert (token.id, token.text) == (other.id, other.text)
            shift = len(inserted) if token.start >= len(before) and token.end > len(before) else 0
            assert (token.start - shift, token.end - shift) == (other.start, other.end)
    assert len(matched) + len(found.inserted) + len(found.remerged) == len(tokens)
    if not inserted:
        assert found.base == tuple(range(len(tokens)))


def test_a_token_that_merges_with_the_insertion_is_reported_and_not_matched(tokenization: Tokenization) -> None:
    edited, base = text_of("a ///", "/////", " b"), text_of("a ///", "", " b")
    found = align(edited, tokens_of(tokenization, edited), base, tokens_of(tokenization, base))
    assert found.remerged
    assert found.lost
    assert found.base[0] == 0


def test_another_text_is_not_aligned(tokenization: Tokenization) -> None:
    edited, base = text_of("a\n", "x\n", "b"), text_of("a\n", "", "c")
    found = align(edited, tokens_of(tokenization, edited), base, tokens_of(tokenization, base))
    assert found.base[:2] == (0, 1)
    assert found.base[-1] is None
    assert found.lost == (2,)


def framed(messages: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<|{role}|>\n{content}<|end|>\n" for role, content in messages) + "<|assistant|>\n"


@settings(deadline=None, max_examples=150)
@given(parts=st.lists(TEXTS.filter(str.strip), min_size=2, max_size=5), order=st.randoms(), data=st.data())
def test_moved_and_deleted_parts_keep_their_tokens_paired(
    tokenization: Tokenization, parts: list[str], order: Random, data: st.DataObject
) -> None:
    pieces = numbered(Piece(f"s{number}", part) for number, part in enumerate(parts))
    base = lay_out([("user", [piece]) for piece in pieces], framed)
    kept = data.draw(st.lists(st.sampled_from(pieces), min_size=1, unique=True))
    order.shuffle(kept)
    edited = lay_out([("user", [piece]) for piece in kept], framed)
    tokens, base_tokens = tokens_of(tokenization, edited), tokens_of(tokenization, base)
    found = align(edited, tokens, base, base_tokens)
    matched = [place for place in found.base if place is not None]
    assert len(set(matched)) == len(matched)
    assert sorted([*matched, *found.lost]) == list(range(len(base_tokens)))
    for token, place in zip(tokens, found.base, strict=True):
        if place is not None:
            other = base_tokens[place]
            assert (token.id, token.text) == (other.id, other.text)
            characters = base_places(edited, base)[token.start : token.end]
            assert characters.tolist() == list(range(other.start, other.end))
    whole = {piece.segment: segments_of(tokens, edited.spans).count(piece.segment) for piece in kept}
    for piece in kept:  # messages are tokenized alone here, so all tokens of a part stay
        mine = [
            place
            for place, name in zip(found.base, segments_of(tokens, edited.spans), strict=True)
            if name == piece.segment
        ]
        assert len(mine) == whole[piece.segment]
        inside = [token for token in base_tokens if _within(token, base, piece.segment)]
        assert sum(token.position in set(mine) for token in inside) == len(inside)
    if kept == pieces:
        assert found.base == tuple(range(len(tokens)))


def _within(token: Token, text: Text, segment: str) -> bool:
    """Whether a token lies inside a segment, away from its borders."""
    return any(
        span.segment == segment and span.start < token.start and token.end < span.end and token.end > token.start
        for span in text.spans
    )


@settings(deadline=None, max_examples=150)
@given(before=TEXTS, inserted=TEXTS, after=TEXTS)
def test_shares_of_classes_by_segment_add_up_and_count_characters(
    tokenization: Tokenization, before: str, inserted: str, after: str
) -> None:
    text = text_of(before, inserted, after)
    tokens = tokens_of(tokenization, text)
    rules = {"in": "segment:inserted", "hash": "#", "space": "re:\\s", "a": "segment:a"}
    shares = membership(rules, text.text, tokens, text.spans)
    np.testing.assert_allclose(shares.sum(0), 1)
    for token in tokens:
        if not token.special and token.end > token.start:
            inside = [len(before) <= place < len(before) + len(inserted) for place in range(token.start, token.end)]
            assert shares[0, token.position] == pytest.approx(np.mean(inside))
    assert len(segments_of(tokens, text.spans)) == len(tokens)


def cut(text: Text, lengths: list[int]) -> CharacterRanges:
    """Tokens of these lengths over a text, and a last one for the rest."""
    ends = sorted({min(len(text.text), int(end)) for end in np.cumsum(lengths)} | {len(text.text)})
    return np.array([(start, end) for start, end in pairwise([0, *ends]) if end > start]).reshape(-1, 2)


CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=12)


@given(ones=CUTS, twos=CUTS, question=TEXTS, hint=TEXTS, twice=st.booleans())
def test_what_is_carried_over_to_another_tokenizer_stays_on_its_characters(
    ones: list[int], twos: list[int], question: str, hint: str, twice: bool
) -> None:
    here = lay_out([(None, [Piece("template", "<<"), Piece("q", question), Piece("h", hint)])], None)
    there = lay_out([(None, [Piece("h", hint), Piece("template", " "), Piece("q", question)])], None)
    tokens, onto = cut(here, ones), cut(there, twos)
    if twice:  # characters that are several tokens, as bytes are
        onto = np.repeat(onto, 2, axis=0)
    matrix, covered = carry_over(tokens, here, onto, there)
    dense = matrix.toarray()
    assert (dense >= 0).all()
    in_both = [sum(place >= len("<<") for place in range(start, end)) / (end - start) for start, end in tokens]
    np.testing.assert_allclose(dense.sum(1), in_both)
    space = len(hint)  # the place of the other template's character
    assert covered.tolist() == [not start <= space < end for start, end in onto]
    same, all_there = carry_over(tokens, here, tokens, here)
    whole = np.array([start >= len("<<") for start, _ in tokens], dtype=bool)
    np.testing.assert_allclose(same.toarray()[whole], np.eye(len(tokens))[whole])
    assert all_there.tolist() == whole.tolist()


def test_a_segment_that_a_template_trims_is_matched_where_it_stands() -> None:
    here = lay_out([(None, [Piece("q", "  abc ")])], None)
    there = lay_out([(None, [Piece("q", "abc")])], None)
    tokens, onto = np.array([(0, 3), (3, 6)]), np.array([(0, 1), (1, 3)])
    matrix, covered = carry_over(tokens, here, onto, there)
    np.testing.assert_allclose(matrix.toarray(), [[1 / 3, 0], [0, 2 / 3]])
    assert covered.all()
    assert carry_over(tokens, here, onto, lay_out([(None, [Piece("q", "xyz")])], None))[0].sum() == 0
    assert carry_over(tokens, here, onto, lay_out([(None, [Piece("other", "abc")])], None))[0].sum() == 0
