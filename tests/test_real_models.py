"""The other real models: read as exactly as the default one, on the input they were trained on."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch

import attnscope
from attnscope import Lens
from attnscope.models.builtin import BUILTINS
from attnscope.models.cache import place
from attnscope.models.gguf import converted_from
from attnscope.text.alignment import carry_over
from attnscope.text.segments import Piece, whole
from tests.attention import reference
from tests.tolerances import DEEP

pytestmark = pytest.mark.model

GEMMA, MINILM, SMOLLM2 = "gemma-3-270m", "minilm-l6", "smollm2-135m-instruct"
_rows = (files("attnscope.text.sets") / "problems.jsonl").read_text(encoding="utf-8").splitlines()
TEXT = "\n".join(json.loads(row)["question"] for row in _rows)
PLAIN = "The quick brown fox jumps over the lazy dog, and the dog, who was asleep a moment ago, does not even look up."


@pytest.fixture(scope="module")
def gemma() -> Lens:
    return attnscope.load(GEMMA)


@pytest.fixture(scope="module")
def minilm() -> Lens:
    return attnscope.load(MINILM)


@pytest.fixture
def lens(request: pytest.FixtureRequest) -> Lens:
    found: Lens = request.getfixturevalue(request.param)
    return found


def ids_of(lens: Lens, count: int) -> list[int]:
    """So many tokens of a text, with what the tokenizer puts around it."""
    ids = [token.id for token in lens.tokenize(TEXT)]
    assert len(ids) >= count
    return ids[: count - 1] + ids[-1:]


@pytest.mark.parametrize(("lens", "counts"), [("gemma", (64, 560)), ("minilm", (5, 64, 300, 512))], indirect=["lens"])
def test_every_head_equals_eager_attention_alone_and_in_a_padded_batch(lens: Lens, counts: tuple[int, ...]) -> None:
    prompts = [lens.tokenization.spelled(ids_of(lens, count)) for count in counts]
    rows = [{"some": [1, count // 2, count - 1]} for count in counts]
    together = lens.measure_prepared(prompts, ["last", "all", "some"], rows=rows)
    for (_, tokens), batched, count in zip(prompts, together, counts, strict=True):
        ids = [token.id for token in tokens]
        alone = lens.measure_tokens(ids)  # the default: the last row only, on another path than all of them
        body: Any = lens.model.base_model  # the head of 262,144 tokens is not needed
        attention = reference.eager(body, {"input_ids": torch.tensor([ids])}).attentions
        assert len(attention) == len(batched.layers) == lens.loaded.layers
        for layer, matrix in enumerate(attention):
            weights = matrix[0].detach().numpy()  # (heads, queries, keys)
            np.testing.assert_allclose(alone.received[layer, :, 0], weights[:, -1], atol=DEEP)
            np.testing.assert_allclose(batched.received[layer, :, 0], weights[:, -1], atol=DEEP)
            np.testing.assert_allclose(batched.received[layer, :, 1], weights.mean(1), atol=DEEP)
            some = weights[:, [1, count // 2, count - 1]].mean(1)
            np.testing.assert_allclose(batched.received[layer, :, 2], some, atol=DEEP)


def test_gemmas_window_binds_in_its_local_layers_only(gemma: Lens) -> None:
    reading = gemma.measure_tokens(ids_of(gemma, 800))
    beyond = reading.received[:, :, 0, : 800 - 512].sum((1, 2))
    wide = [layer for layer in range(18) if beyond[layer] > 0]
    assert wide == [5, 11, 17]
    assert {layer for layer, kind in reading.evidence["masks"].items() if "window 512" in kind} == {
        str(layer) for layer in range(18) if layer not in wide
    }


def test_gemma_gets_the_bos_it_was_trained_with(gemma: Lens) -> None:
    reading = gemma.measure(PLAIN)
    assert reading.tokens[0].text == "<bos>"
    assert reading.tokens[0].special
    check = gemma.input_check
    assert check.added
    assert check.wants_bos is True
    assert check.with_bos is not None
    assert check.without_bos is not None
    assert check.with_bos < check.without_bos - 1
    assert reading.evidence["input"]["warning"] is None
    assert reading.received[:, :, 0, 0].mean() > 0.3  # the sink is there


def test_gemma_without_bos_or_with_two_of_them_is_warned_of(gemma: Lens) -> None:
    ids = [token.id for token in gemma.tokenize(PLAIN)]
    without = gemma.measure_tokens(ids[1:]).evidence["input"]["warning"]
    assert "does not begin with <bos>" in without
    twice = gemma.measure("<bos>" + PLAIN).evidence["input"]["warning"]
    assert "begins with <bos> twice" in twice


def test_a_model_that_does_not_mind_is_not_warned_of() -> None:
    lens = attnscope.load(SMOLLM2)
    assert lens.input_check.wants_bos is None
    assert lens.measure(PLAIN, layers=[0]).evidence["input"]["warning"] is None


def test_an_encoder_has_no_loss_and_the_evidence_says_so(minilm: Lens) -> None:
    evidence = minilm.measure(PLAIN).evidence
    assert evidence["input"]["reason"] == "it does not predict the next token"
    assert evidence["input"]["warning"] is None
    assert evidence["weights_made_from"] is None


@pytest.mark.parametrize("name", [GEMMA, MINILM, SMOLLM2])
def test_what_the_entry_of_a_built_in_model_says_is_true(name: str) -> None:
    packed, loaded = BUILTINS[name].packed, attnscope.load(name).loaded
    config = loaded.model.config.get_text_config()
    assert (loaded.layers, loaded.heads) == (packed.layers, packed.heads)
    assert (getattr(config, "num_key_value_heads", None) or packed.heads) == packed.kv_heads
    from_gguf = packed.weights.endswith(".gguf")
    assert (converted_from(place(name)).quantization if from_gguf else None) == packed.quantization
    assert (place(name) / packed.terms).stat().st_size > 1000
    assert loaded.licence == packed.licence


# Worked out by hand from the two tokenizers' tokens: of each Gemma token, the share of its characters that lies in each
# of SmolLM2's. Three questions of the bundled set in which the two split differently.
BY_HAND = {
    " five eighths": {
        (" five", " five"): 1.0,
        (" e", " eighth"): 2 / 7,
        ("igh", " eighth"): 3 / 7,
        ("ths", " eighth"): 2 / 7,
        ("ths", "s"): 1.0,
    },
    " the stone's volume": {
        (" the", " the"): 1.0,
        (" stone", " stone"): 1.0,
        ("'s", "'"): 1.0,
        ("'s", "s"): 1.0,
        (" volume", " volume"): 1.0,
    },
    ": 9, ?, 1": {
        (":", ":"): 1.0,
        (" ", " "): 1.0,
        ("9", "9"): 1.0,
        (",", ","): 1.0,
        (" ?", " ?,"): 2 / 3,
        (",", " ?,"): 1 / 3,
        ("1", "1"): 1.0,
    },
}


@pytest.mark.parametrize("question", BY_HAND)
def test_attention_is_carried_between_the_two_tokenizers_as_by_hand(question: str, gemma: Lens) -> None:
    smollm2 = attnscope.load(SMOLLM2)
    text = whole("", []).followed_by(Piece("question", question))
    tokens = {}
    for name, lens in (("smollm2", smollm2), ("gemma", gemma)):
        tokens[name] = [token for token in lens.tokenize(question) if not token.special]
    spans = {name: np.array([(token.start, token.end) for token in each]) for name, each in tokens.items()}
    matrix, covered = carry_over(spans["gemma"], text, spans["smollm2"], text)
    assert covered.all()
    shares: dict[tuple[str, str], float] = {}
    for row, column in zip(*matrix.nonzero(), strict=True):
        pair = tokens["smollm2"][column].text, tokens["gemma"][row].text
        assert shares.setdefault(pair, matrix[row, column]) == pytest.approx(matrix[row, column])
    assert shares == pytest.approx(BY_HAND[question])
