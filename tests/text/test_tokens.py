"""What is shown of tokens is the text, each character once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from attnscope.text.tokens import CONTINUATION, shown_texts


@given(st.lists(st.integers(1, 4), max_size=12))
def test_tokens_that_cover_a_text_are_shown_as_the_text(lengths: list[int]) -> None:
    text = "abcdefgh" * 6
    ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
    places = [(text[end - length : end], end - length, end) for length, end in zip(lengths, ends, strict=True)]
    assert "".join(shown_texts(places)) == text[: sum(lengths)]


def test_what_no_token_covers_is_shown_as_a_space() -> None:
    places = [("[CLS]", 0, 0), ("We", 0, 2), ("walked", 3, 9), (",", 9, 10), ("so", 12, 14), ("[SEP]", 0, 0)]
    assert shown_texts(places) == ["[CLS]", "We", " walked", ",", " so", "[SEP]"]


def test_the_tokens_of_one_character_show_it_once() -> None:
    assert shown_texts([("a", 0, 1), ("🙂", 1, 2), ("🙂", 1, 2), ("b", 2, 3)]) == ["a", "🙂", CONTINUATION, "b"]
