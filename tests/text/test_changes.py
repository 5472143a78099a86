"""What edits change: merged, both texts can be read from it, and what moved is known in both places."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attnscope.text.changes import Change, changes, moved_characters
from attnscope.text.segments import FRAME, TEMPLATE, Piece, Span, Text, numbered, origins_of


def assembled(pieces: list[Piece]) -> Text:
    text, spans, origins = "", [], []
    for piece in pieces:
        spans.append(Span(piece.segment, len(text), len(text) + len(piece.text)))
        origins.append(origins_of(piece))
        text += piece.text
    return Text(text, tuple(spans), np.concatenate([np.zeros(0, dtype=np.int64), *origins]))


def laid_out(*parts: tuple[str, str]) -> list[Piece]:
    return numbered(Piece(segment, text) for segment, text in parts)


def kinds(merged: list[Change]) -> list[tuple[str, str]]:
    return [(change.kind, change.text) for change in merged]


WORDS = st.text("abc \n", min_size=1, max_size=6)


@st.composite
def edited(draw: st.DrawFn) -> tuple[Text, Text]:
    """Pieces that are deleted, moved, cut and put in at random; and the base prompt they come from."""
    base = laid_out(*((f"s{place}", draw(WORDS)) for place in range(draw(st.integers(1, 6)))))
    pieces = draw(st.permutations(base))[: draw(st.integers(0, len(base)))]
    pieces = [each.part(draw(st.integers(0, len(each.text) - 1))) for each in pieces]
    for _ in range(draw(st.integers(0, 3))):
        pieces.insert(draw(st.integers(0, len(pieces))), Piece("inserted", draw(WORDS)))
    return assembled(pieces), assembled(base)


@given(edited())
def test_both_texts_can_be_read_from_the_changes(texts: tuple[Text, Text]) -> None:
    after, before = texts
    merged = changes(after, before)
    assert "".join(each.text for each in merged if each.kind in ("same", "new", "moved")) == after.text
    assert "".join(each.text for each in merged if each.kind in ("same", "gone", "from")) == before.text
    here = {each.number: each.text for each in merged if each.kind == "moved"}
    there = {each.number: each.text for each in merged if each.kind == "from"}
    assert here == there
    assert all(each.text for each in merged)
    assert (moved_characters(after, before).sum()) == sum(map(len, here.values()))


@given(edited())
def test_text_that_is_new_or_gone_is_not_moved(texts: tuple[Text, Text]) -> None:
    after, before = texts
    merged = changes(after, before)
    counts: Counter[str] = Counter()
    for each in merged:
        counts[each.kind] += len(each.text)
    known = set(before.origins.tolist())
    assert counts["new"] == sum(origin not in known for origin in after.origins.tolist())
    assert counts["gone"] == len(known - set(after.origins.tolist()))


def test_the_same_text_has_no_changes() -> None:
    text = assembled(laid_out(("a", "one "), (TEMPLATE, "- "), ("b", "two")))
    assert kinds(changes(text, text)) == [("same", "one - two")]
    nothing = Text("", ())
    assert changes(nothing, nothing) == []
    assert kinds(changes(nothing, text)) == [("gone", "one - two")]


def test_a_replaced_part_is_gone_before_the_new_one() -> None:
    one, two, three = laid_out(("a", "one "), ("b", "two"), ("c", " three"))
    after = assembled([one, two.replaced("2"), three])
    merged = changes(after, assembled([one, two, three]))
    assert kinds(merged) == [("same", "one "), ("gone", "two"), ("new", "2"), ("same", " three")]


def test_of_two_parts_that_change_places_both_moved_and_the_layout_did_not() -> None:
    first, between, second = laid_out(("hint", "a long hint"), (TEMPLATE, "\n"), ("question", "Why?"))
    merged = changes(assembled([second, between, first]), assembled([first, between, second]))
    assert merged == [
        *(Change("from", "a long hint", 2), Change("moved", "Why?", 1), Change("same", "\n")),
        *(Change("from", "Why?", 1), Change("moved", "a long hint", 2)),
    ]


def test_a_template_that_stays_is_the_same() -> None:
    frame = np.full(3, FRAME, dtype=np.int64)
    (piece,) = laid_out(("question", "Why?"))
    span = (Span(TEMPLATE, 0, 3), Span("question", 3, 7))
    before = Text("<u>Why?", span, np.concatenate([frame, origins_of(piece)]))
    after = Text("<u>", span[:1], frame)
    assert kinds(changes(after, before)) == [("same", "<u>"), ("gone", "Why?")]
