"""Tokens that a model writes are spelled as they stand: blanks, emoji and all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from attnscope.models.tokenization import HALF, Tokenization
from attnscope.text.classes import membership
from tests.models import tiny

PARTS = ["The", " cat", "s", "/", " ", "\n", "\t", "é", "e\u0301", "🙂", "👩‍👩‍👧", "語", "#", " the", " sat"]
UNKNOWN = {"unk_token": "<unk>"}
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=12).map("".join)


@pytest.fixture(scope="module")
def default(smollm2_tokenization: Tokenization) -> Tokenization:
    return smollm2_tokenization


@pytest.fixture(scope="module")
def blanks_before_words() -> Tokenization:
    """As sentencepiece's are: a blank belongs to the word behind it, and is not spelled at the start of a text."""
    learned: Any = Tokenizer(BPE(**UNKNOWN))
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    learned.decoder = decoders.Metaspace()
    trainer = BpeTrainer(vocab_size=90, special_tokens=["<unk>", "<s>", "</s>"])
    learned.train_from_iterator(["the cat sat on the mat and the cat had a hat"] * 9, trainer)
    return Tokenization(PreTrainedTokenizerFast(tokenizer_object=learned, **tiny.SPECIAL, **UNKNOWN), "tiny")


@settings(deadline=None, max_examples=200)
@given(text=TEXTS, cut=st.integers(0, 12))
def test_an_answers_tokens_cover_its_text_as_the_tokenizer_would_have_cut_it(
    default: Tokenization, text: str, cut: int
) -> None:
    tokens = default.tokenize(text, chat=True)
    ids = [token.id for token in tokens]
    before = default._decode(ids[:cut])
    assume(HALF not in before)
    spelled, more = default.spelled(ids[cut:], before, ids[:cut])
    assert spelled == default._decode(ids)
    assert [token.position for token in more] == list(range(len(ids)))[cut:]
    if spelled == text:
        assert [(token.start, token.end) for token in more] == [(token.start, token.end) for token in tokens[cut:]]


def test_blanks_are_spelled_where_they_stand(blanks_before_words: Tokenization) -> None:
    ids = blanks_before_words.tokenizer("the cat sat", add_special_tokens=False)["input_ids"]
    first = blanks_before_words.tokenizer("the", add_special_tokens=False)["input_ids"]
    assert ids[: len(first)] == first
    text, tokens = blanks_before_words.spelled(ids[len(first) :], "the", first)
    assert text == "the cat sat"
    assert "".join(token.text for token in tokens) == " cat sat"
    assert " cat" in blanks_before_words.words


def test_half_a_character_at_the_end_is_told_as_such(default: Tokenization) -> None:
    ids = [token.id for token in default.tokenize("a \U00013000", chat=True)]
    text, tokens = default.spelled(ids[:-1])
    assert text.startswith("a ")
    assert text.endswith(HALF)
    assert tokens[-1].end == len(text)


@pytest.mark.parametrize("text", ["8 red", "#!", "漢字 8", "a b", "▁8"])
def test_the_space_that_a_tokenizer_puts_before_a_text_has_none_of_its_characters(text: str) -> None:
    pieces = [("<unk>", 0.0), ("▁", -2.0), *((sign, -3.0) for sign in "8#!漢字abred"), ("▁b", -1.0)]
    unigram = Tokenizer(Unigram(pieces, unk_id=0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=unigram, **UNKNOWN)
    tokens = Tokenization(tokenizer, "m").tokenize(text)
    covered = [place for token in tokens for place in range(token.start, token.end)]
    assert covered == list(range(len(text)))
    shares = membership({"digit": "re:[0-9]"}, text, tokens)[0]
    assert shares.sum() == pytest.approx(text.count("8"), abs=0.51)  # "▁8" may be one token
    assert set(shares[[token.start == token.end for token in tokens]]) <= {0.0}
