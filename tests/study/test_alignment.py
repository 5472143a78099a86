"""Tokens that two conditions share are told by their characters, on a real tokenizer and any text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.models.load import look_up
from attnscope.models.wording import Wording
from attnscope.study.alignment import align, carry_over
from attnscope.study.classes import membership
from attnscope.study.layout import lay_out
from attnscope.study.segments import INSERTED, Piece, Text, segments_of
from attnscope.study.tokens import Token

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
def wording() -> Wording:
    return look_up("smollm2-135m-instruct").wording


def text_of(before: str, inserted: str, after: str) -> Text:
    return lay_out([(None, [Piece("a", before), Piece(INSERTED, inserted), Piece("b", after)])], None)


def tokens_of(wording: Wording, text: Text) -> list[Token]:
    try:
        return wording.tokenize(text.text)
    except AttnscopeError:  # no text, or only characters that this vocabulary has no bytes for
        return []


@settings(deadline=None, max_examples=150)
@given(before=TEXTS, inserted=TEXTS, after=TEXTS)
def test_a_shared_token_has_the_same_id_and_characters_and_none_is_matched_twice(
    wording: Wording, before: str, inserted: str, after: str
) -> None:
    edited, base = text_of(before, inserted, after), text_of(before, "", after)
    tokens, base_tokens = tokens_of(wording, edited), tokens_of(wording, base)
    found = align(edited, tokens, base, base_tokens)
    assert found is not None
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


def test_a_token_that_merges_with_the_insertion_is_reported_and_not_matched(wording: Wording) -> None:
    edited, base = text_of("a ///", "/////", " b"), text_of("a ///", "", " b")
    found = align(edited, tokens_of(wording, edited), base, tokens_of(wording, base))
    assert found is not None
    assert found.remerged
    assert found.lost
    assert found.base[0] == 0


def test_another_text_is_not_aligned(wording: Wording) -> None:
    edited, base = text_of("a", "x", "b"), text_of("a", "", "c")
    assert align(edited, tokens_of(wording, edited), base, tokens_of(wording, base)) is None


@settings(deadline=None, max_examples=150)
@given(before=TEXTS, inserted=TEXTS, after=TEXTS)
def test_shares_of_classes_by_segment_add_up_and_count_characters(
    wording: Wording, before: str, inserted: str, after: str
) -> None:
    text = text_of(before, inserted, after)
    tokens = tokens_of(wording, text)
    rules = {"in": "segment:inserted", "hash": "#", "blank": "re:\\s", "a": "segment:a"}
    shares = membership(rules, text.text, tokens, text.spans)
    np.testing.assert_allclose(shares.sum(0), 1)
    for token in tokens:
        if not token.special and token.end > token.start:
            inside = [len(before) <= place < len(before) + len(inserted) for place in range(token.start, token.end)]
            assert shares[0, token.position] == pytest.approx(np.mean(inside))
    assert len(segments_of(tokens, text.spans)) == len(tokens)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_values_carried_over_to_another_tokenizer_keep_their_sum_on_the_same_characters(
    ones: list[int], twos: list[int]
) -> None:
    def cut(lengths: list[int], end: int) -> list[tuple[str, int, int]]:
        ends = [min(end, place) for place in np.cumsum(lengths).tolist()]
        spans = [("q", start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True) if stop > start]
        return [*spans, *([("q", ends[-1], end)] if ends[-1] < end else [])]

    tokens, onto = cut(ones, 20), cut(twos, 20)
    values = np.random.default_rng(0).random((2, len(tokens)))
    carried = carry_over(tokens, values, onto)
    np.testing.assert_allclose(carried.sum(-1), values.sum(-1))
    np.testing.assert_allclose(carry_over(tokens, values, tokens), values)
    assert carry_over(tokens, values, [("other", 0, 20)]).sum() == 0
