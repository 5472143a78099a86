"""What Python callers may give by mistake is refused in one line; whole numbers of any type will do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnscope
from attnscope import AttnscopeError, Lens
from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.records import Record
from attnscope.studies import request_study
from attnscope.text.tokens import Token
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
    ({"layers": torch.tensor(True)}, "layers are not whole numbers"),
    ({"layers": torch.tensor([[1]])}, "layers are not whole numbers"),
    ({"layers": bytearray(b"\x01")}, "layers are not whole numbers"),
    ({"layers": {0: [1]}}, "layers are not whole numbers"),
    ({"layers": []}, "no layers are given"),
    ({"heads": ["0"]}, "heads are not whole numbers"),
    ({"queries": None}, "queries are not names"),
    ({"queries": [1]}, "queries are not names"),
    ({"queries": np.array("last")}, "queries are not names"),
    ({"queries": []}, "missing or named twice"),
    ({"queries": ["last", "last"]}, "missing or named twice"),
    ({"measures": None}, "measures are not names"),
    ({"measures": [3]}, "measures are not names"),
]
OF_A_LENS: list[tuple[dict[str, Any], str]] = [
    ({"queries": ["x"], "rows": {"x": 5}}, "positions 0 to"),
    ({"queries": ["x"], "rows": {"x": [None]}}, "positions 0 to"),
    ({"queries": ["x"], "rows": {"x": [0.0]}}, "positions 0 to"),
    ({"queries": ["x"], "rows": {"x": torch.tensor(1)}}, "positions 0 to"),
    ({"queries": ["x"], "rows": {"x": torch.tensor([1, 1])}}, "positions 0 to"),
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


def ways_to_read_ids(lens: Lens) -> list[Callable[[Any], object]]:
    return [lens.measure_tokens, lens.compared, lambda ids: lens.generate_tokens(ids, 3)]


@pytest.mark.parametrize("ids", [[1.5], ["a"], None, [[1, 2]], "12", np.array([[1, 2]]), [True], {1}, {1: 2}])
def test_token_ids_that_are_no_numbers_are_refused(lens: Lens, ids: Any) -> None:
    for read in ways_to_read_ids(lens):
        with pytest.raises(AttnscopeError, match="ids are not whole numbers"):
            read(ids)


@pytest.mark.parametrize("ids", [[], (), np.array([]), torch.tensor([])])
def test_no_token_ids_are_refused(lens: Lens, ids: Any) -> None:
    for read in ways_to_read_ids(lens):
        with pytest.raises(AttnscopeError, match="no ids are given"):
            read(ids)


@pytest.mark.parametrize("number", [-1, 10**6, 2**70])
def test_token_ids_outside_the_vocabulary_are_refused(lens: Lens, number: int) -> None:
    for read in ways_to_read_ids(lens):
        with pytest.raises(AttnscopeError, match=rf"token {number} at position 1 is unknown.*ids 0 to \d+"):
            read([3, number])


def test_token_ids_may_be_an_array_or_a_tensor(lens: Lens) -> None:
    want = lens.measure_tokens([3, 4, 5]).received.values
    for ids in (np.array([3, 4, 5]), torch.tensor([3, 4, 5]), (3, 4, 5)):
        np.testing.assert_array_equal(lens.measure_tokens(ids).received.values, want)  # type: ignore[arg-type]
        assert lens.generate_tokens(ids, np.int64(2)) == lens.generate_tokens([3, 4, 5], 2)  # type: ignore[arg-type]
        assert lens.compared(ids).tokens == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [None, 5, b"abc", ["abc"], True])
def test_what_is_no_text_is_refused(lens: Lens, text: Any) -> None:
    words = f"text is of type {type(text).__name__}.*a string.*pass one string"
    for read in (lens.measure, lens.tokenize, lens.render, lambda text: lens.log_probs(text, "a")):
        with pytest.raises(AttnscopeError, match=words):
            read(text)
    with pytest.raises(AttnscopeError, match=f"answer is of type {type(text).__name__}"):
        lens.log_probs("a", text)


def test_half_a_character_is_refused_where_it_is(lens: Lens) -> None:
    for read in (lens.measure, lens.tokenize, lens.render, lambda text: lens.log_probs("a", text)):
        with pytest.raises(AttnscopeError, match=r"half a character at position 2: '\\ud83d'"):
            read("ab\ud83d")


@pytest.mark.parametrize("count", [0, -1, 1.5, "5", None, True, [], NAN, torch.tensor(0), np.array([1])])
def test_what_is_no_number_of_tokens_or_rounds_is_refused(lens: Lens, count: Any) -> None:
    for name, read in (
        ("tokens", lambda: lens.check(tokens=count)),
        ("rounds", lambda: lens.check(rounds=count)),
        ("tokens", lambda: lens.generate_tokens([1, 2], count)),
    ):
        with pytest.raises(AttnscopeError, match=rf"^{name} can't be .*\({name}=.*\): a whole number, 1 or more; "):
            read()


def test_a_check_may_be_as_short_as_one_token_and_one_round(lens: Lens) -> None:
    assert lens.check(tokens=np.int64(1), rounds=torch.tensor(1)).long.tokens == 1  # type: ignore[arg-type]


def test_what_is_too_long_is_refused_without_advice_that_does_not_apply(lens: Lens) -> None:
    long = [3] * 2049
    for read in (
        lambda: lens.generate_tokens(long, 1),
        lambda: lens.log_probs("a" * 2048, "b"),
        lambda: lens.compared(long),
    ):
        with pytest.raises(AttnscopeError, match="at most 2048 tokens") as caught:
            read()
        assert "beyond_context" not in str(caught.value)


def test_a_model_without_a_head_writes_no_answer(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match=r"constructed writes no text \(LlamaModel\)"):
        lens_on(lens.model.base_model).generate_tokens([3, 4], 2)


def test_a_lens_is_made_of_a_model_and_a_name() -> None:
    with pytest.raises(AttnscopeError, match=r"a NoneType is not a model that attnscope loaded.*attnscope.load"):
        Lens.of(None)  # type: ignore[arg-type]
    model: Any = llama()
    with pytest.raises(AttnscopeError, match="name is of type int"):
        Lens(model, lens_on(model).tokenizer, name=3)  # type: ignore[arg-type]
    with pytest.raises(AttnscopeError, match="name is of type int"), attnscope.record(model, name=3):  # type: ignore[arg-type]
        pytest.fail("the user's own code began")


A = Token(0, 3, "a", 0, 1)


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ([], "there are no prompts"),
        (None, "the prompts are a NoneType"),
        ("a", "the prompts are a str"),
        (["a"], "prompt 0 is not a text and its tokens"),
        ([("a", [A]), ("a",)], "prompt 1 is not a text and its tokens"),
        ([(None, [A])], "text is of type NoneType"),
        ([("a", [])], "prompt 0 has no tokens"),
        ([("a", [A]), ("", [])], "prompt 1 has no tokens"),
        ([("a", None)], "prompt 0 are not tokens"),
        ([("a", [3])], "prompt 0 are not tokens"),
        ([("", [A])], "token 0 of prompt 0 is not at this place"),
        ([("aa", [A, A])], "token 1 of prompt 0 is not at this place"),
        ([("a", [Token(0, 3, "a", None, 1)])], "token 0 of prompt 0 is not at this place"),  # type: ignore[arg-type]
        ([("a", [Token(0, None, "a", 0, 1)])], "ids are not whole numbers"),  # type: ignore[arg-type]
    ],
)
def test_prompts_without_their_tokens_are_refused(lens: Lens, prompts: Any, words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        lens.measure_prepared(prompts)


def test_heads_that_are_named_twice_are_measured_once(lens: Lens, record: Record) -> None:
    assert lens.measure(TEXT, layers=[1, 1], heads=[2, 0, 2]).heads == [2, 0]
    assert record.of_heads([2, 0, 2]).heads == [2, 0]
    with attnscope.record(lens.model, layers=[1, 1], heads=[2, 0, 2]) as recording:
        lens.model(input_ids=torch.tensor([[3, 4, 5]]))
    assert recording.received[0].labels["head"] == [2, 0]
    assert recording.received[0].shape == (1, 1, 2, 1, 3)


@pytest.mark.parametrize("texts", ["abc", None, 5, b"abc", {"abc"}, {"abc": 1}, np.array("abc")])
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


def test_an_edit_of_outputs_that_fails_is_named(lens: Lens, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(AttentionEdit):
        """x"""

        key = "odd"
        changes = "outputs"
        odd: str

        def outputs(self, outputs: Any, layer: int, q: Any) -> Any:
            return outputs[:1] if self.odd == "shape" else 1 // 0

    monkeypatch.setitem(ATTENTION_EDITS.members, "odd", Odd)
    for odd, words in (("shape", "returns .*its outputs"), ("raise", "fails with ZeroDivisionError.*its outputs")):
        with pytest.raises(AttnscopeError, match=f"^the attention edit 'odd' {words}"):
            lens.measure(TEXT, edits=[Odd(odd=odd)])


@pytest.mark.parametrize("classes", [["#"], "#", {"hash": 3}, {3: "#"}, None])
def test_classes_that_are_no_rules_by_name_are_refused(record: Record, classes: Any) -> None:
    with pytest.raises(AttnscopeError, match=r"a mapping such as \{'hash': '#'\}"):
        record.mass(classes)
    with pytest.raises(AttnscopeError, match=r"a mapping such as \{'hash': '#'\}"):
        record.unmatched(classes)


def test_a_record_refuses_what_it_does_not_have(record: Record) -> None:
    with pytest.raises(AttnscopeError, match=r"query group 'zz' was not measured.*last, all"):
        record.top("a", queries="zz")
    with pytest.raises(AttnscopeError, match="query group '3' was not measured"):
        record.top("a", queries=np.array(3))  # type: ignore[arg-type]
    for rule in (None, 3, ["#"]):
        with pytest.raises(AttnscopeError, match=r"rule is of type .*a class rule such as"):
            record.top(rule)  # type: ignore[arg-type]
    for count in (-1, 0, 1.5, True, None):
        with pytest.raises(AttnscopeError, match="1 or more"):
            record.top("a", count)  # type: ignore[arg-type]
    with pytest.raises(AttnscopeError, match=r"one number per head.*received, top1"):
        record.mass({"hash": "#"}, "entropy")
    assert len(record.top("a", torch.tensor(2))) == 2  # type: ignore[arg-type]
    assert len(record.top("a", 2**70)) == 12
    with pytest.raises(AttnscopeError, match="classes are not rules by name"):
        record.as_json(np.array([1, 2]))  # type: ignore[arg-type]
    assert "mass" not in record.as_json({})


@pytest.mark.parametrize("name", ["zz", None, 3, ["entropy"], np.array(["entropy", "top1"])])
def test_a_record_refuses_measures_that_it_does_not_have(record: Record, name: Any) -> None:
    for read in (record.uniform, record.defined, record.__getitem__, lambda name: record.mass({"hash": "#"}, name)):
        with pytest.raises(AttnscopeError, match=r"was not measured.*(near|known): "):
            read(name)


def test_a_record_refuses_heads_that_it_does_not_have(record: Record) -> None:
    for heads in ([77], [-1], 77):
        with pytest.raises(AttnscopeError, match=r"head -?\d+ was not measured.*heads 0 to 3"):
            record.of_heads(heads)  # type: ignore[arg-type]
    with pytest.raises(AttnscopeError, match=r"head 1 was not measured.*heads 0, 3"):
        record.of_heads([0, 3]).of_heads([1])
    for nothing in ([], None, "0", [True], 1.5):
        with pytest.raises(AttnscopeError, match="heads are"):
            record.of_heads(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("one", [1, np.int64(1), np.array(1), torch.tensor(1)])
@pytest.mark.parametrize("several", [[1], (1,), {1}, np.array([1]), torch.tensor([1]), range(1, 2)])
def test_labels_may_be_whole_numbers_of_any_type(record: Record, one: Any, several: Any) -> None:
    want = record.received.values[1]
    np.testing.assert_array_equal(record.received.at(layer=one).values, want)
    picked = record.received.at(layer=several)
    np.testing.assert_array_equal(picked.values, want[None])
    assert picked.labels["layer"] == [1]
    assert record.received.at(queries=np.array(["all"])).labels["queries"] == ["all"]


@pytest.mark.parametrize("label", [True, [True], None, 77, [[1]], np.array([[1, 2]]), "1", 1.5, [0, 9], {1: 2}])
def test_what_is_no_label_is_refused(record: Record, label: Any) -> None:
    with pytest.raises(AttnscopeError, match=r"there is no layer .*use one of the layer labels"):
        record.received.at(layer=label)
    for nothing in (list[int](), np.array([])):
        with pytest.raises(AttnscopeError, match=r"no layer is named \(at\(layer=\[\]\)\).*\[0, 1, 2\]"):
            record.received.at(layer=nothing)


@pytest.mark.parametrize("it", [None, 3, b"x", ["x"], np.array([1, 2])])
def test_what_is_no_name_of_a_model_or_study_is_refused(it: Any) -> None:
    with pytest.raises(AttnscopeError, match=r"name is of type .*a built-in model, a folder"):
        attnscope.load(it)
    with pytest.raises(AttnscopeError, match=r"name is of type .*a bundled study or a study file"):
        attnscope.run_study(it)
    if it is not None:
        for name, words in (
            ("adapter", "adapter is of type "),
            ("revision", "revision is of type "),
            ("dtype", "unknown dtype"),
            ("device", "there is no such device"),
        ):
            with pytest.raises(AttnscopeError, match=words):
                attnscope.load("nobody/nothing", **{name: it})


@pytest.mark.parametrize("it", [3, [], {}, "", np.array([1, 2])])
def test_what_is_no_device_map_is_refused(it: Any) -> None:
    with pytest.raises(AttnscopeError, match="this is not a device map"):
        attnscope.load("nobody/nothing", device_map=it)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": 0}, r"limit can't be 0 \(limit=0\)"),
        ({"limit": "5"}, "limit can't be '5'"),
        ({"limit": True}, "limit can't be True"),
        ({"limit": 1.5}, "limit can't be 1.5"),
        ({"models": None}, "models are not names"),
        ({"models": [3]}, "models are not names"),
        ({"models": "nobody"}, "the study has no model 'nobody'"),
        ({"swaps": ["a"]}, "swaps are not sources by label"),
        ({"swaps": {"SmolLM2-135M": 3}}, r"swaps\['SmolLM2-135M'\] is of type int"),
        ({"instead": 3}, "instead is of type int"),
        ({"engine": []}, "engine is of type list"),
        ({"out": 3}, "out is of type int"),
    ],
)
def test_a_study_refuses_what_it_cannot_use(options: dict[str, Any], words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        attnscope.run_study("symbols", **options)


def test_a_study_takes_whole_numbers_of_any_type_and_one_label() -> None:
    request = request_study(Path("symbols"), limit=np.int64(2), models="SmolLM2-135M")  # type: ignore[arg-type]
    assert len(request.prompts.prompts) == 2
    assert [model.label for model in request.study.models] == ["SmolLM2-135M"]


def test_evidence_for_a_query_group_that_is_none_is_refused(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match="unknown query group 'lsat'"):
        lens.evidence(["lsat"])


@pytest.mark.parametrize("rule", ["segment:question", "in:question:#", "whole:in:question:re:[0-9]"])
def test_a_record_refuses_classes_of_segments_as_its_text_has_none(record: Record, rule: str) -> None:
    for ask in (record.mass, record.unmatched, record.as_json):
        with pytest.raises(AttnscopeError, match=r"class 'q' needs segments.*\(classes=\{'q'"):
            ask({"#": "#", "q": rule})
    with pytest.raises(AttnscopeError, match=r"needs segments.*\(rule="):
        record.top(rule)
