"""Every segment's place in the text is known, whatever a chat template puts around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.text.layout import Layout, Message, lay_out
from attnscope.text.segments import INSERTED, TEMPLATE, Piece, segments_of
from attnscope.text.tokens import Token

ANY = st.text(alphabet=st.one_of(st.characters(exclude_categories=["Cs", "Co"]), st.sampled_from("  \n\r\t\u200b{}<|")))


def as_is(messages: Sequence[Message]) -> str:
    return "".join(f"<|{role}|>\n{content}<|end|>\n" for role, content in messages) + "<|assistant|>\n"


def trimming(messages: Sequence[Message]) -> str:
    return "<s>You help.\n\n" + "".join(f"[{role}]\n\n{content.strip()}</s>" for role, content in messages)


TEMPLATES = st.sampled_from([as_is, trimming])


@given(a=ANY, b=ANY, more=ANY, apply=TEMPLATES)
def test_segments_are_found_again_behind_any_template(
    a: str, b: str, more: str, apply: Callable[[Sequence[Message]], str]
) -> None:
    layout = Layout((("system", "{a}"), ("user", "Now: {b}{a} {{end}}")))
    lines = [(role, [*pieces, Piece(INSERTED, more)]) for role, pieces in layout.pieces({"a": a, "b": b})]
    made = lay_out(lines, apply)
    assert made.text == apply([(role or "", "".join(piece.text for piece in pieces)) for role, pieces in lines])
    assert [span.start for span in made.spans[1:]] == [span.end for span in made.spans[:-1]]
    if made.spans:
        assert (made.spans[0].start, made.spans[-1].end) == (0, len(made.text))
    wanted = {"a": a + a, "b": b, INSERTED: more + more}
    for segment, text in wanted.items():
        assert apply is trimming or made.of(segment) == text
        assert "".join(made.of(segment).split()) == "".join(text.split())


@given(a=ANY, b=ANY)
def test_a_plain_layout_is_its_pieces_one_after_the_other(a: str, b: str) -> None:
    made = lay_out(Layout(((None, "{{{a}}}: {b}"),)).pieces({"a": a, "b": b}), None)
    assert made.text == f"{{{a}}}: {b}"
    assert (made.of("a"), made.of("b")) == (a, b)


def test_blanks_at_the_edge_belong_to_the_message_only_if_the_template_keeps_them() -> None:
    pieces = [("user", [Piece("question", "\n\nWhy? ")])]
    assert lay_out(pieces, as_is).of("question") == "\n\nWhy? "
    kept = lay_out(pieces, trimming)
    assert kept.of("question") == "Why?"
    assert kept.text.endswith("[user]\n\nWhy?</s>")


@pytest.mark.parametrize(
    "apply",
    [
        lambda messages: messages[0][1].upper(),
        lambda messages: messages[0][1] * 2,
        lambda messages: "no content",
        lambda messages: messages[0][1].encode("unicode_escape").decode(),
    ],
)
def test_a_template_that_changes_the_text_is_refused(apply: Callable[[Sequence[Message]], str]) -> None:
    with pytest.raises(AttnscopeError, match="changes the text"):
        lay_out([("user", [Piece("question", "why\n")])], apply)


def test_a_field_the_prompt_has_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(AttnscopeError, match=r"'qestion'.*near: question"):
        Layout(((None, "{qestion}"),)).pieces({"question": "?", "answer": "!"})


def test_a_token_over_a_border_belongs_to_where_most_of_it_is() -> None:
    made = lay_out([(None, [Piece("a", "xx"), Piece("b", "yyy")])], None)
    tokens = [Token(0, 1, "x", 0, 1), Token(1, 1, "xy", 1, 3), Token(2, 1, "yy", 3, 5), Token(3, 1, "</s>", 5, 5)]
    assert segments_of(tokens, made.spans) == ["a", "a", "b", TEMPLATE]
    assert segments_of([Token(0, 1, "xxyyy", 0, 5)], made.spans) == ["b"]


def test_a_special_token_is_of_the_template_unless_an_edit_inserts_it() -> None:
    made = lay_out([(None, [Piece("a", "<s>"), Piece(INSERTED, "<s>"), Piece("a", "x")])], None)
    tokens = [Token(0, 1, "<s>", 0, 0, special=True), Token(1, 1, "<s>", 0, 3, special=True)]
    tokens += [Token(2, 1, "<s>", 3, 6, special=True), Token(3, 2, "x", 6, 7), Token(4, 2, "</s>", 7, 7, special=True)]
    assert segments_of(tokens, made.spans) == [TEMPLATE, TEMPLATE, INSERTED, "a", TEMPLATE]
