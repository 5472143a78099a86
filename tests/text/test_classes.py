"""Every token belongs to classes by its share of characters, and the shares always add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.text.classes import membership, parse_classes, parse_rule, written_rule
from attnscope.text.rules import RULES, Claims, ClassRule
from attnscope.text.tokens import Token


def cut(text: str, lengths: list[int]) -> list[Token]:
    """Tokens of these lengths one after the other, the last one taking what is left; a length of 0 covers nothing."""
    tokens: list[Token] = []
    start = 0
    for length in lengths:
        end = min(len(text), start + length)
        tokens.append(Token(len(tokens), 1, text[start:end], start, end))
        start = end
    tokens.append(Token(len(tokens), 1, text[start:], start, len(text)))
    return tokens


CLASSES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(
        ["#", "*# ", "re:\\s+", "re:[0-9]", "re:.", "special:", "special:x", "é", "position:0", "position:1-3,-1"]
    ),
)


@given(text=st.text(max_size=60), lengths=st.lists(st.integers(0, 5), max_size=20), rules=CLASSES)
def test_shares_add_up_to_one_for_every_token_of_any_text(text: str, lengths: list[int], rules: dict[str, str]) -> None:
    tokens = cut(text, lengths)
    shares = membership(rules, text, tokens)
    assert shares.shape == (len(rules) + 1, len(tokens))
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(0), 1)


def test_a_token_that_mixes_kinds_is_split_by_its_characters() -> None:
    shares = membership({"hash": "#", "space": "re:\\s"}, " ##\n", [Token(0, 1, " ##\n", 0, 4)])
    np.testing.assert_allclose(shares[:, 0], [0.5, 0.5, 0.0])


def test_a_character_goes_to_the_first_class_that_claims_it() -> None:
    shares = membership({"any": "re:.", "hash": "#"}, "#", [Token(0, 1, "#", 0, 1)])
    np.testing.assert_allclose(shares[:, 0], [1, 0, 0])


def test_special_tokens_belong_to_no_class_of_characters() -> None:
    mark = Token(0, 1, "<|im_start|>", 0, 12, special=True)
    np.testing.assert_allclose(membership({"pipe": "|"}, "<|im_start|>", [mark])[:, 0], [0, 1])
    np.testing.assert_allclose(membership({"pipe": "|", "mark": "special:"}, "<|im_start|>", [mark])[:, 0], [0, 1, 0])


def test_special_tokens_can_be_claimed_by_name_and_the_first_class_has_them() -> None:
    tokens = [Token(place, place, name, 0, 0, special=True) for place, name in enumerate(["[CLS]", "[SEP]", "[PAD]"])]
    named = membership({"cls": "special:[CLS]", "sep": "special:[SEP]"}, "", tokens)
    np.testing.assert_allclose(named, np.eye(3))
    rest = membership({"sep": "special:[SEP]", "all": "special:"}, "", tokens)
    np.testing.assert_allclose(rest[:2], [[0, 1, 0], [1, 0, 1]])
    late = membership({"all": "special:", "sep": "special:[SEP]"}, "", tokens)
    np.testing.assert_allclose(late[:2], [[1, 1, 1], [0, 0, 0]])
    said = Token(0, 7, "[SEP]", 0, 5)  # the same characters as text, not as a special token
    np.testing.assert_allclose(membership({"sep": "special:[SEP]"}, "[SEP]", [said])[:, 0], [0, 1])


POSITIONS = st.one_of(
    st.integers(-30, 30).map(lambda one: (one, one)),
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda both: (min(both), max(both))),
    st.tuples(st.integers(-30, -1), st.integers(-30, -1)).map(lambda both: (min(both), max(both))),
)


@given(count=st.integers(1, 25), special=st.sets(st.integers(0, 24)), parts=st.lists(POSITIONS, min_size=1, max_size=4))
def test_positions_count_every_token_from_either_end(
    count: int, special: set[int], parts: list[tuple[int, int]]
) -> None:
    tokens = [Token(place, place, "x", place, place + 1, special=place in special) for place in range(count)]
    rule = "position:" + ",".join(str(one) if one == two else f"{one}-{two}" for one, two in parts)
    named = {each for one, two in parts for each in range(one, two + 1)}
    want = [place in named or place - count in named for place in range(count)]
    np.testing.assert_array_equal(membership({"here": rule}, "x" * count, tokens)[0], want)


def test_a_class_of_positions_leaves_the_rest_to_others_and_has_no_token_beyond_the_prompt() -> None:
    tokens = [Token(0, 1, "<s>", 0, 0, special=True), Token(1, 7, "ab", 0, 2), Token(2, 8, "#", 2, 3)]
    first = membership({"first": "position:0", "hash": "#"}, "ab#", tokens)
    np.testing.assert_array_equal(first, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    late = membership({"hash": "#", "last": "position:-1", "far": "position:3,7-9,-4"}, "ab#", tokens)
    np.testing.assert_array_equal(late, [[0, 0, 1], [0, 0, 0], [0, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(membership({"rest": "position:1--1"}, "ab#", tokens)[0], [0, 1, 1])


def test_a_special_token_that_covers_the_space_beside_it_is_claimed_by_its_name() -> None:
    tokens = [Token(0, 5, " <mask>", 1, 8, special=True), Token(1, 6, "<mask> ", 8, 15, special=True)]
    np.testing.assert_allclose(membership({"mask": "special:<mask>"}, "a <mask><mask> ", tokens), [[1, 1], [0, 0]])


@pytest.mark.parametrize("rule", ["hash", "=#", "hash=", " =x"])
def test_a_class_that_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(AttnscopeError, match="NAME=CHARACTERS"):
        parse_classes([rule])


def test_a_name_twice_and_the_name_other_are_refused() -> None:
    with pytest.raises(AttnscopeError, match="already a class 'a'"):
        parse_classes(["a=#", "a=*"])
    with pytest.raises(AttnscopeError, match="other"):
        parse_classes(["other=#"])


def test_a_broken_or_endless_pattern_is_refused() -> None:
    with pytest.raises(AttnscopeError, match="can't be read"):
        membership({"x": "re:["}, "abc", [])


def test_a_class_may_hold_an_equals_sign() -> None:
    assert parse_classes(["sign=="]) == {"sign": "="}


@pytest.mark.parametrize("characters", [":", ":;,", "a:", "é:", "1:2", "#:", "-- :", "chars", "12:30"])
def test_text_that_does_not_begin_with_a_word_and_a_colon_is_a_set_of_characters(characters: str) -> None:
    rule = parse_rule(characters)
    assert (rule.kind.name, rule.argument) == ("chars", characters)
    shares = membership({"x": characters}, characters, cut(characters, []))
    assert shares[0, 0] == 1


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("token:42", ["unknown class rule 'token:'", "chars:token:42"]),
        ("Segment:question", ["unknown class rule 'Segment:'", "near: segment"]),
        ("sgment:question", ["near: segment"]),
        ("http://", ["unknown class rule 'http:'"]),
        ("in:question:spcial:", ["near: special"]),
        ("position:x", ["'x' is not a position", "0, -1, 0-3 or 1,5"]),
        ("position:", ["nothing follows position:"]),
        ("position:1.5", ["'1.5' is not a position"]),
        ("position:1,,2", ["'' is not a position"]),
        ("position:3-1", ["'3-1' ends before it begins"]),
        ("position:-1--3", ["'-1--3' ends before it begins"]),
        ("position:99999999999", ["is not a position"]),
        ("in:question:position:0", ["can be limited to a segment, not position:"]),
        ("in:question:special:", ["can be limited to a segment, not special:"]),
        ("in:question:", ["nothing follows in:question:"]),
        ("in:question", ["nothing follows in:question:"]),
        ("segment:", ["nothing follows segment:"]),
        ("re:", ["nothing follows re:"]),
        ("re:[", ["the pattern can't be read"]),
    ],
)
def test_a_rule_that_does_not_exist_or_cannot_be_followed_is_refused(rule: str, words: list[str]) -> None:
    for read in (parse_rule, lambda text: parse_classes([f"x={text}"]), lambda text: membership({"x": text}, "a", [])):
        with pytest.raises(AttnscopeError) as refusal:
            read(rule)
        for word in words:
            assert word in str(refusal.value)


@given(st.text(min_size=1, max_size=12))
def test_any_characters_can_be_written_as_a_rule_and_read_back(characters: str) -> None:
    rule = parse_rule(written_rule(RULES.members["chars"], characters))
    assert (rule.kind.name, rule.argument) == ("chars", characters)
    assert parse_rule(f"chars:{characters}").argument == characters


def test_a_rule_can_claim_whole_tokens_and_earlier_classes_keep_their_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_id = ClassRule(
        name="id",
        meaning="Tokens of this id.",
        claims=lambda argument, prompt: Claims(
            tokens=np.array([each.id == int(argument) for each in prompt.tokens], dtype=bool)
        ),
    )
    monkeypatch.setitem(RULES.members, "id", by_id)
    tokens = [Token(0, 7, "#a", 0, 2), Token(1, 8, "#b", 2, 4), Token(2, 7, "<s>", 4, 4, special=True)]
    np.testing.assert_allclose(
        membership({"hash": "#", "seven": "id:7"}, "#a#b", tokens), [[0.5, 0.5, 0], [0.5, 0, 1], [0, 0.5, 0]]
    )
    np.testing.assert_allclose(membership({"seven": "id:7", "hash": "#"}, "#a#b", tokens)[0], [1, 0, 1])


def test_a_rule_whose_claims_do_not_fit_the_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ClassRule(name="xx", meaning="x", claims=lambda argument, prompt: Claims(tokens=np.ones(9, dtype=bool)))
    monkeypatch.setitem(RULES.members, "xx", wrong)
    with pytest.raises(AttnscopeError, match=r"class rule 'xx' claims tokens.*an array of 1 bools"):
        membership({"x": "xx:1"}, "a", cut("a", []))


@pytest.mark.parametrize(
    ("share", "want"),
    [
        ("", [[0.25, 1, 0.75, 0], [0.75, 0, 0.25, 0.5], [0, 0, 0, 0.5]]),
        ("whole:", [[1, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]),
        ("majority:", [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]),
        ("first:", [[1, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]),
    ],
)
def test_a_token_that_mixes_classes_is_shared_as_the_rule_says(share: str, want: list[list[float]]) -> None:
    text = "#***" + "##" + "###*" + "*x"
    tokens = [Token(n, n, text[a:b], a, b) for n, (a, b) in enumerate([(0, 4), (4, 6), (6, 10), (10, 12)])]
    shares = membership({"hash": f"{share}#", "star": f"{share}*"}, text, tokens)
    np.testing.assert_allclose(shares, want)
    assert written_rule(*(rule := parse_rule(f"{share}#")).__dict__.values()) == f"{share}#"
    assert rule.share == (share.rstrip(":") or "characters")


def test_classes_with_different_ways_to_share_still_add_up() -> None:
    token = Token(0, 1, "#*xx", 0, 4)
    shares = membership({"hash": "majority:#", "star": "*"}, "#*xx", [token])[:, 0]
    np.testing.assert_allclose(shares, [0, 0.25, 0.75])  # one of four is not half
    taken = membership({"hash": "majority:#", "star": "*"}, "##*x", [Token(0, 1, "##*x", 0, 4)])[:, 0]
    np.testing.assert_allclose(taken, [1, 0, 0])


def test_a_cell_with_a_space_before_it_belongs_to_its_character_unless_the_first_one_counts() -> None:
    """Most tokenizers join a space with what follows."""
    token = Token(0, 1, " #", 0, 2)
    for share, want in (("", [0.5, 0.5, 0]), ("whole:", [1, 0, 0]), ("majority:", [1, 0, 0]), ("first:", [0, 1, 0])):
        shares = membership({"hash": f"{share}#", "space": f"{share}re:\\s"}, " #", [token])[:, 0]
        np.testing.assert_allclose(shares, want, err_msg=share)
