"""Attention edits say exactly which weights change, and how; checked against masks written out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from attnscope.edits.attention import ATTENTION_EDITS, AnyAttentionEdit
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.hide import Hide
from attnscope.errors import AttnscopeError
from attnscope.text.rules import Tokenized
from attnscope.text.segments import Span
from attnscope.text.tokens import Token

TEXT = "ask #me now"
TOKENS = [Token(0, 1, "<s>", 0, 0, special=True)] + [
    Token(place + 1, place, TEXT[start:end], start, end) for place, (start, end) in enumerate([(0, 4), (4, 7), (7, 11)])
]
PROMPT = Tokenized(TEXT, TOKENS, (Span("question", 0, 7), Span("template", 7, 11)))
Q = torch.arange(4)


def attention(scores: torch.Tensor, hidden: torch.Tensor | None = None, sink: float | None = None) -> torch.Tensor:
    """Causal attention of scores (heads, 4, 4), some of it hidden before the softmax."""
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    if hidden is not None:
        seen = seen & ~hidden
    scores = scores.masked_fill(~seen, -torch.inf)
    if sink is None:
        return torch.softmax(scores, -1).nan_to_num(0)
    extra = torch.full((*scores.shape[:-1], 1), sink, dtype=scores.dtype)
    return torch.softmax(torch.cat([scores, extra], -1), -1)[..., :-1]


@pytest.mark.parametrize("sink", [None, 0.5])
def test_hidden_keys_are_as_if_they_were_masked(sink: float | None) -> None:
    scores = torch.randn(3, 4, 4, dtype=torch.float64)
    before = attention(scores, sink=sink)
    edit = Hide(hide=(0, 2), queries=(2, 3), heads=(0, 2))
    hidden = torch.zeros(4, 4, dtype=torch.bool)
    hidden[2:, [0, 2]] = True
    after = edit.weights(before, 0, [0, 1, 2], Q, Q)
    want = attention(scores, hidden, sink)
    torch.testing.assert_close(after[[0, 2]], want[[0, 2]])
    torch.testing.assert_close(after[1], before[1])
    torch.testing.assert_close(before, attention(scores, sink=sink))  # what is given stays as it is


def test_hidden_keys_can_leave_the_other_weights_as_they_are() -> None:
    before = attention(torch.randn(2, 4, 4))
    after = Hide(hide=(1,), how="zero").placed(PROMPT).weights(before, 0, [0, 1], Q, Q)
    want = before.clone()
    want[..., 1] = 0
    torch.testing.assert_close(after, want)


def test_a_row_that_sees_nothing_else_has_no_attention_left() -> None:
    after = Hide(hide=(0,), queries=(0,)).weights(attention(torch.randn(1, 4, 4)), 0, [0], Q, Q)
    assert after[0, 0].tolist() == [0, 0, 0, 0]


def test_a_block_of_rows_is_found_by_its_positions() -> None:
    before = attention(torch.randn(1, 4, 4))
    edit = Hide(hide=(1,), queries=(3,), how="zero")
    block = edit.weights(before[:, 2:, 1:], 0, [0], Q[2:], Q[1:])
    torch.testing.assert_close(block, edit.weights(before, 0, [0], Q, Q)[:, 2:, 1:])


@pytest.mark.parametrize(
    ("hide", "queries", "keys", "rows"),
    [
        ("segment:question", "all", (1, 2), (0, 1, 2, 3)),
        ("#", "last", (), ()),  # a third of one token
        ("re:#m", "question", (2,), (1, 2)),
        ("special:", "last", (0,), (3,)),
        ((1, 0), (3,), (0, 1), (3,)),
    ],
)
def test_names_become_positions_in_a_prompt(hide: Any, queries: Any, keys: tuple[int, ...], rows: Any) -> None:
    edit = Hide(hide=hide, queries=queries)
    if not keys:
        with pytest.raises(AttnscopeError, match="it matches no token"):
            edit.placed(PROMPT)
        return
    placed = edit.placed(PROMPT)
    assert (placed.key_positions, placed.query_positions) == (keys, rows)
    assert placed.placed(PROMPT) == placed


def test_positions_outside_the_prompt_are_refused() -> None:
    with pytest.raises(AttnscopeError, match=r"no token 9.*0 to 3"):
        Hide(hide=(9,)).placed(PROMPT)


def test_layers_say_where_an_edit_applies() -> None:
    assert [Hide(hide=(0,), layers=range(1, 3)).applies_to(layer) for layer in range(4)] == [False, True, True, False]
    assert Hide(hide=(0,)).applies_to(99)
    ablate = Ablate(ablate={2: [3, 0]})
    assert [ablate.applies_to(layer) for layer in (1, 2)] == [False, True]
    assert (ablate.heads_of(2), ablate.heads_of(1)) == ((0, 3), ())


def test_given_outputs_belong_to_exactly_the_ablated_heads() -> None:
    edit = Ablate(ablate={1: [0]}, how="values", values={1: {0: (0.5, -1.0)}})
    assert edit.value_of(1, 0) == (0.5, -1.0)
    assert edit.value_of(0, 0) is None
    with pytest.raises(ValidationError, match="layer 1, head 2"):
        Ablate(ablate={1: [0, 2]}, how="values", values={1: {0: (0.5,)}})
    with pytest.raises(ValidationError, match="values need how: values"):
        Ablate(ablate={1: [0]}, values={1: {0: (0.5,)}})


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"hide": "token:4"}, "unknown class rule"),
        ({"hide": [1, 1]}, "given twice"),
        ({"hide": [0], "layers": []}, "at least 1"),
        ({"hide": [-1]}, "greater than or equal to 0"),
        ({"hide": [0], "head": [1]}, "unknown key 'head'"),
        ({"ablate": {}}, "at least 1"),
        ({"ablate": {0: [1]}, "layers": [0]}, "already names the layers"),
        ({"hid": [0]}, "unknown key 'hid'"),
        ({"hide": [0], "ablate": {0: [1]}}, "named at once"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused(edit: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TypeAdapter(AnyAttentionEdit).validate_python(edit)


def test_an_edit_is_data_and_can_be_stored_and_read_back() -> None:
    family = TypeAdapter(AnyAttentionEdit)
    for edit in (Hide(hide="segment:question", layers=(1,)), Ablate(ablate={1: [0]}, how="mean")):
        assert family.validate_json(family.dump_json(edit)) == edit
    assert set(ATTENTION_EDITS.built_in) == {"hide", "ablate"}
