"""The lens on the real default model: its numbers are eager attention's, batched or alone."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from attnscope import AttnscopeError, Lens
from attnscope.models.builtin import BUILTINS
from tests.attention import reference
from tests.tolerances import DEEP, NATS, SUMMED

TEXT = "Solve: # # . * * moves right.\nAnswer:"


@pytest.fixture(scope="module")
def lens(smollm2: Lens) -> Lens:
    return smollm2


def test_three_calls_give_exact_numbers(lens: Lens) -> None:
    import torch

    reading = lens.measure(TEXT, queries=["last", "all"], layers=[0, 16, 29])
    ids = torch.tensor([[token.id for token in reading.tokens]])
    attention = reference.eager(lens.model, {"input_ids": ids}).attentions
    assert reading.received.shape == (3, 9, 2, len(reading.tokens))
    for place, layer in enumerate([0, 16, 29]):
        want = attention[layer][0]
        np.testing.assert_allclose(reading.received[place, :, 0], want[:, -1], atol=DEEP)
        np.testing.assert_allclose(reading.received[place, :, 1], want.mean(1), atol=DEEP)
    np.testing.assert_allclose(reading.row_sums, 1, atol=DEEP)


def test_tokens_carry_the_characters_they_stand_for(lens: Lens) -> None:
    reading = lens.measure(TEXT + " é🙂𝔸", layers=[0])
    text = TEXT + " é🙂𝔸"
    for token in reading.tokens:
        assert token.text == text[token.start : token.end]
    covered = {place for token in reading.tokens for place in range(token.start, token.end)}
    assert covered == set(range(len(text)))


def test_mass_is_a_tidy_table_that_adds_up(lens: Lens) -> None:
    reading = lens.measure(TEXT, queries=["last", "all"], layers=[3, 20])
    table = reading.mass({"hash": "#", "star": "*"})
    assert table.columns == ["layer", "head", "queries", "token_class", "mass", "expected"]
    assert len(table) == 2 * 9 * 2 * 3
    sums = table.group_by("layer", "head", "queries").agg(pl.col("mass", "expected").sum())
    np.testing.assert_allclose(sums["mass"], 1, atol=DEEP)
    np.testing.assert_allclose(sums["expected"], 1, atol=SUMMED)
    place = [token.position for token in reading.tokens if token.text == " #"]
    one = table.filter(pl.col("token_class") == "hash", layer=20, head=4, queries="last")["mass"].item()
    hashes = reading.received[1, 4, 0, place].sum() / 2  # half of ' #' is a blank
    assert one == pytest.approx(hashes, abs=SUMMED)


def test_a_batch_of_mixed_lengths_gives_each_prompt_what_it_gets_alone(lens: Lens) -> None:
    texts = ["One short line.", TEXT * 4, "#", "Twelve words stand in this line, which is neither short nor long."]
    together = lens.measure_batch(texts, queries=["last", "all"], layers=[0, 15, 29], measures=["entropy"])
    for text, batched in zip(texts, together, strict=True):
        alone = lens.measure(text, queries=["last", "all"], layers=[0, 15, 29], measures=["entropy"])
        np.testing.assert_allclose(batched.received, alone.received, atol=DEEP)
        np.testing.assert_allclose(batched.uniform().values, alone.uniform().values, atol=SUMMED)
        np.testing.assert_allclose(batched["entropy"], alone["entropy"], atol=NATS * DEEP)


def test_answers_written_together_are_those_that_transformers_writes_to_each_prompt(lens: Lens) -> None:
    import torch

    texts = ["What is the capital of France?", "Hi", TEXT]
    together = lens.generate_batch(texts, 12, chat=True)
    for text, answer in zip(texts, together, strict=True):
        ids = torch.tensor([[token.id for token in lens.tokenize(lens.render(text), chat=True)]])
        written = lens.model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]  # type: ignore[operator]
        assert answer.text == lens.tokenizer.decode(written, skip_special_tokens=True)
    assert "Paris" in together[0].text


def test_heads_and_own_query_groups_can_be_picked(lens: Lens) -> None:
    whole = lens.measure(TEXT, queries=["all"], layers=[7])
    picked = lens.measure(TEXT, queries=["start", "all"], layers=[7], heads=[5, 2], rows={"start": [0]})
    assert picked.heads == [5, 2]
    np.testing.assert_allclose(picked.received[0, :, 1], whole.received[0, [5, 2], 0], atol=DEEP)
    np.testing.assert_allclose(picked.received[0, :, 0, 0], 1, atol=SUMMED)


def test_chat_wraps_the_text_in_the_models_own_template(lens: Lens) -> None:
    reading = lens.measure("Hi #", layers=[0], chat=True)
    assert reading.text.endswith("<|im_start|>user\nHi #<|im_end|>\n<|im_start|>assistant\n")
    marks = [token for token in reading.tokens if token.special]
    assert len(marks) == 5
    share = reading.mass({"mark": "special:"}).filter(pl.col("token_class") == "mark", head=0)["mass"].item()
    assert share == pytest.approx(reading.received[0, 0, 0, [token.position for token in marks]].sum(), abs=SUMMED)


def test_measuring_leaves_room_for_ordinary_use_of_the_model(lens: Lens) -> None:
    import torch

    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.inference_mode():
        before = lens.model(ids).logits
        lens.measure(TEXT)
        after = lens.model(ids).logits
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": [30]}, "layers 0 to 29"),
        ({"layers": [-1]}, "layers 0 to 29"),
        ({"heads": [9]}, "heads 0 to 8"),
        ({"queries": ["lst"]}, "near: last"),
        ({"queries": ["mine"], "rows": {"mine": [10_000]}}, "positions 0 to"),
        ({"queries": ["mine"], "rows": {"mine": []}}, "positions 0 to"),
    ],
)
def test_what_is_out_of_range_is_refused_with_the_range(lens: Lens, options: dict[str, object], words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        lens.measure(TEXT, **options)  # type: ignore[arg-type]


def test_an_empty_prompt_and_one_beyond_the_context_are_refused(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match="empty"):
        lens.measure("")
    with pytest.raises(AttnscopeError, match="at most 8192 tokens"):
        lens.measure("# " * 9000, layers=[0])


def test_a_prompt_beyond_the_context_can_be_measured_when_asked(lens: Lens) -> None:
    reading = lens.measure_tokens([10] * 8200, queries=["last"], layers=[0], beyond_context=True)
    assert reading.received.shape[-1] == 8200
    np.testing.assert_allclose(reading.row_sums, 1, atol=DEEP)


def test_every_reading_says_how_it_is_known_to_be_exact(lens: Lens) -> None:
    evidence = lens.measure(TEXT, layers=[0, 1]).evidence
    assert evidence["check"]["way"] == "attention interface"
    assert evidence["check"]["difference"] < DEEP
    assert evidence["check"]["causal"] is True
    assert evidence["masks"] == {"0": "causal", "1": "causal"}
    assert evidence["model"] == "smollm2-135m-instruct"


def test_rows_of_a_group_that_is_not_asked_for_are_refused(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match=r"'mine'.*name it in queries"):
        lens.measure(TEXT, rows={"mine": [0, 1]}, layers=[0])


@pytest.mark.parametrize("layers", ["0", [], [0.5], [True]])
def test_layers_that_are_no_numbers_are_refused(lens: Lens, layers: object) -> None:
    with pytest.raises(AttnscopeError, match=r"layers=\[0, 16\]"):
        lens.measure(TEXT, layers=layers)  # type: ignore[arg-type]


def test_one_layer_may_be_given_as_a_number(lens: Lens) -> None:
    assert lens.measure(TEXT, layers=3).layers == [3]


def test_a_prompt_that_is_no_text_is_refused(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match="measure_tokens"):
        lens.measure([1, 2])  # type: ignore[arg-type]


def test_a_check_that_would_not_fit_the_memory_is_refused(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match=r"at most [0-9]+ tokens"):
        lens.check(tokens=99_999)


def test_evidence_says_what_the_weights_were_made_from(lens: Lens) -> None:
    evidence = lens.measure(TEXT, layers=[0]).evidence
    packed = BUILTINS["smollm2-135m-instruct"].packed
    expected = f"{packed.weights} (SHA-256 {packed.sha256}), expanded from Q4_1 to float32"
    assert evidence["weights_made_from"] == expected
    assert evidence["licence"] == "Apache-2.0"
    assert repr(lens.measure(TEXT, layers=[0])).startswith("Record(")
