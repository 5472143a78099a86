"""Attention edits say exactly which weights change, and how; checked against masks written out by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from attnscope.edits.attention import ATTENTION_EDITS, AnyAttentionEdit
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.head_outputs import mean_output, resampled
from attnscope.edits.attention.hide import Hide
from attnscope.edits.attention.patch import Patch
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


def chance(seed: int) -> Random:
    return Random(seed)  # noqa: S311


OUTPUTS = torch.randn(4, 3, 2)  # of four tokens and three heads


def test_given_values_replace_the_output_of_the_patched_heads_alone() -> None:
    before, values = OUTPUTS.clone(), np.arange(8.0).reshape(4, 2)
    after = Patch(patch={1: [2]}, values={1: {0: values, 2: values}}).placed(PROMPT).outputs(OUTPUTS, 1, Q)
    torch.testing.assert_close(after[:, 2], torch.arange(8.0).view(4, 2))
    torch.testing.assert_close(after[:, :2], OUTPUTS[:, :2])
    torch.testing.assert_close(OUTPUTS, before)  # what is given stays as it is


def test_an_alignment_says_which_value_each_token_gets_and_which_tokens_keep_their_own() -> None:
    values = np.arange(6.0).reshape(3, 2)
    edit = Patch(patch={1: [0]}, values={1: {0: values}}, align=(None, 2, 0)).placed(PROMPT)
    after = edit.outputs(OUTPUTS, 1, Q)[:, 0]
    torch.testing.assert_close(after[[0, 3]], OUTPUTS[[0, 3], 0])
    torch.testing.assert_close(after[[1, 2]], torch.tensor([[4.0, 5.0], [0.0, 1.0]]))
    torch.testing.assert_close(edit.outputs(OUTPUTS[2:], 1, Q[2:])[:, 0], after[2:])  # later tokens, with a cache
    torch.testing.assert_close(edit.outputs(OUTPUTS[3:], 1, Q[3:]), OUTPUTS[3:])


def test_one_vector_is_for_every_token() -> None:
    edit = Patch(patch={1: [0]}, values={1: {0: (1.0, 2.0)}})
    after = edit.placed(PROMPT).outputs(OUTPUTS, 1, Q)[:, 0]
    torch.testing.assert_close(after, torch.tensor([1.0, 2.0]).expand(4, 2))
    aligned = edit.model_copy(update={"align": (None, 0)}).placed(PROMPT).outputs(OUTPUTS, 1, Q)[:, 0]
    torch.testing.assert_close(aligned[1], after[1])
    torch.testing.assert_close(aligned[[0, 2, 3]], OUTPUTS[[0, 2, 3], 0])


def test_controls_of_a_patch_are_other_heads_with_values_of_their_own() -> None:
    values = {head: np.full(2, head) for head in (0, 1, 2, 5)}
    edit = Patch(patch={1: [1]}, values={1: values})
    drawn = [edit.control(PROMPT, {1: 4}, chance(seed)) for seed in range(30)]
    assert {each.patch[1] for each in drawn if each is not None} == {(0,), (2,)}
    assert Patch(patch={1: [1]}, values={1: {1: values[1]}}).control(PROMPT, {1: 4}, chance(0)) is None


def test_a_mean_counts_every_token_of_every_text_the_same() -> None:
    texts = [{0: {3: np.array([[1.0, 0.0]])}}, {0: {3: np.array([[2.0, 0.0], [6.0, 3.0]], np.float32)}}]
    np.testing.assert_allclose(mean_output(iter(texts))[0][3], [3.0, 1.0])


def test_resampling_keeps_the_first_token_apart_and_follows_its_seed() -> None:
    drawn = [resampled(200, 5, chance(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] == 0
    assert set(drawn[0][1:]) == {1, 2, 3, 4}
    assert resampled(1, 1, chance(0)) == (0,)
    with pytest.raises(AttnscopeError, match="no token besides the first"):
        resampled(2, 1, chance(0))


@pytest.mark.parametrize(
    ("values", "more", "words"),
    [
        ({1: {1: [1.0]}}, {}, "no values for layer 1, head 0"),
        ({1: {0: [np.nan]}}, {}, "not finite"),
        ({1: {0: np.ones((2, 2, 2))}}, {}, r"shape \(2, 2, 2\)"),
        ({1: {0: np.ones((2, 0))}}, {}, r"shape \(2, 0\)"),
        ({1: {0: "ab"}}, {}, "not numbers"),
        ({1: {0: [[1.0], [1.0, 2.0]]}}, {}, "not numbers"),
        ([1.0], {}, "not arrays by layer and head"),
        ({1: {0: np.ones((2, 2)), 1: np.ones((3, 2))}}, {}, "different numbers of tokens"),
        ({1: {0: np.ones((2, 2))}}, {"align": (0, 2)}, "names token 2, and the values have 2"),
        ({1: {0: np.ones((2, 2))}}, {"align": (None,)}, "no token a counterpart"),
        ({1: {0: np.ones((2, 2))}}, {"layers": (1,)}, "already names the layers"),
    ],
)
def test_values_that_cannot_be_outputs_are_refused(values: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Patch(patch={1: [0]}, values=values, **more)


def test_the_values_of_a_patch_are_no_part_of_its_schema_or_its_text() -> None:
    edit = Patch(patch={1: [0]}, values={1: {0: np.ones((2, 2))}}, align=(0, None))
    assert "values" not in Patch.model_json_schema()["properties"]
    assert edit.model_dump(mode="json") == {"layers": "all", "patch": {"1": [0]}, "align": [0, None]}
    assert "values" not in repr(edit)


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
    assert set(ATTENTION_EDITS.built_in) == {"hide", "ablate", "patch"}
