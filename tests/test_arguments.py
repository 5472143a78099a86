"""What Python callers may give by mistake is refused in one line; whole numbers of any type will do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnscope
from attnscope import AttnscopeError, Lens
from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.records import Record
from tests.attention.test_proof import lens_on, llama

TEXT = "a # b * c"
NAN = float("nan")


@pytest.fixture(scope="module")
def lens() -> Lens:
    return lens_on(llama())


@pytest.fixture(scope="module")
def record(lens: Lens) -> Record:
    return lens.measure(TEXT, ["last", "all"], measures=["entropy", "top1"])


SHARED: list[tuple[dict[str, Any], str]] = [
    ({"layers": 1.5}, "layers are not whole numbers"),
    ({"layers": [None]}, "layers are not whole numbers"),
    ({"layers": [[0]]}, "layers are not whole numbers"),
    ({"layers": [NAN]}, "layers are not whole numbers"),
    ({"layers": b"\x01"}, "layers are not whole numbers"),
    ({"layers": np.array([0.5])}, "layers are not whole numbers"),
    ({"heads": ["0"]}, "heads are not whole numbers"),
    ({"queries": None}, "queries are not names"),
    ({"queries": [1]}, "queries are not names"),
    ({"queries": []}, "missing or named twice"),
    ({"queries": ["last", "last"]}, "missing or named twice"),
    ({"measures": None}, "measures are not names"),
    ({"measures": [3]}, "measures are not names"),
]
OF_A_LENS: list[tuple[dict[str, Any], str]] = [
    ({"queries": ["x"], "rows": {"x": 5}}, "positions 0 to"),
    ({"queries": ["x"], "rows": {"x": [None]}}, "positions 0 to"),
    ({"rows": 5}, "rows are not mappings"),
    ({"edits": [3]}, "edits are not attention edits"),
    ({"edits": "hide"}, "edits are not attention edits"),
    ({"edits": None}, "edits are not attention edits"),
]


@pytest.mark.parametrize(("options", "words"), [*SHARED, *OF_A_LENS])
def test_a_lens_refuses_what_it_cannot_use(lens: Lens, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        lens.measure(TEXT, **options)
    with pytest.raises(AttnscopeError, match=words):
        lens.measure_tokens([3, 4, 5], **options)
    if "rows" not in options:
        with pytest.raises(AttnscopeError, match=words):
            lens.measure_batch([TEXT, TEXT], **options)


@pytest.mark.parametrize(("options", "words"), SHARED)
def test_a_recording_refuses_what_it_cannot_use_at_once(lens: Lens, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AttnscopeError, match=words), attnscope.record(lens.model, **options):
        pytest.fail("the user's own code began")


@pytest.mark.parametrize("layers", [np.int64(1), np.array([1]), np.array(1), torch.tensor(1), (1,), {1}, range(1, 2)])
def test_whole_numbers_of_any_type_are_layers(lens: Lens, layers: Any) -> None:
    assert lens.measure(TEXT, layers=layers).layers == [1]
    with attnscope.record(lens.model, layers=layers) as recording:
        lens.model(input_ids=torch.tensor([[3, 4, 5]]))
    assert recording.received[0].labels["layer"] == [1]


@pytest.mark.parametrize("ids", [[1.5], ["a"], None, [[1, 2]], [], "12", np.array([[1, 2]]), [True]])
def test_token_ids_that_are_no_numbers_are_refused(lens: Lens, ids: Any) -> None:
    with pytest.raises(AttnscopeError, match="ids are not whole numbers"):
        lens.measure_tokens(ids)


@pytest.mark.parametrize("number", [-1, 10**6, 2**70])
def test_token_ids_outside_the_vocabulary_are_refused(lens: Lens, number: int) -> None:
    with pytest.raises(AttnscopeError, match=rf"token {number} at position 1 is unknown.*ids 0 to \d+"):
        lens.measure_tokens([3, number])


def test_token_ids_may_be_an_array_or_a_tensor(lens: Lens) -> None:
    want = lens.measure_tokens([3, 4, 5]).received.values
    for ids in (np.array([3, 4, 5]), torch.tensor([3, 4, 5]), (3, 4, 5)):
        np.testing.assert_array_equal(lens.measure_tokens(ids).received.values, want)  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", ["abc", None, 5, b"abc"])
def test_what_is_no_list_of_prompts_is_not_measured_as_one(lens: Lens, texts: Any) -> None:
    with pytest.raises(AttnscopeError, match=r"a list of texts; one text goes to measure"):
        lens.measure_batch(texts)


def test_an_attention_edit_that_fails_is_named(lens: Lens, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(AttentionEdit):
        """x"""

        key = "odd"
        odd: str

        def placed(self, prompt: Any) -> Any:
            return {"raise": lambda: 1 // 0, "none": lambda: None}.get(self.odd, lambda: self)()

        def weights(self, weights: Any, layer: int, heads: Any, q: Any, k: Any) -> Any:
            return weights[:1] if self.odd == "shape" else 1 // 0

    monkeypatch.setitem(ATTENTION_EDITS.members, "odd", Odd)
    for odd, words in (
        ("raise", "fails with ZeroDivisionError.*its placed"),
        ("none", "returns a NoneType.*its placed"),
        ("shape", "returns .*its weights"),
        ("weights", "fails with ZeroDivisionError.*its weights"),
    ):
        with pytest.raises(AttnscopeError, match=f"^the attention edit 'odd' {words}"):
            lens.measure(TEXT, edits=[Odd(odd=odd)])


@pytest.mark.parametrize("classes", [["#"], "#", {"hash": 3}, None])
def test_classes_that_are_no_rules_by_name_are_refused(record: Record, classes: Any) -> None:
    with pytest.raises(AttnscopeError, match=r"a mapping such as \{'hash': '#'\}"):
        record.mass(classes)
    with pytest.raises(AttnscopeError, match=r"a mapping such as \{'hash': '#'\}"):
        record.unmatched(classes)


def test_a_record_refuses_what_it_does_not_have(record: Record) -> None:
    with pytest.raises(AttnscopeError, match=r"query group 'zz' was not measured.*last, all"):
        record.top("a", queries="zz")
    for count in (-1, 0, 1.5, True, None):
        with pytest.raises(AttnscopeError, match="1 or more"):
            record.top("a", count)  # type: ignore[arg-type]
    with pytest.raises(AttnscopeError, match=r"one number per head.*received, top1"):
        record.mass({"hash": "#"}, "entropy")
    for read in (record.uniform, record.defined):
        with pytest.raises(AttnscopeError, match="'zz' was not measured"):
            read("zz")
    assert record.received.at(layer=np.array([1])).labels["layer"] == [1]
