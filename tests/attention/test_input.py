"""A model gets input like that it was trained on, or a warning; one that can't predict gets a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import attnscope
from attnscope.attention.input import InputCheck
from attnscope.attention.loss import MOST
from attnscope.lens.lens import PROBE
from tests.models import tiny
from tests.tolerances import LOGITS

WANTS = InputCheck(60, "<s>", 0, added=False, with_bos=2.0, without_bos=4.0, standard_error=0.1)
AVOIDS = InputCheck(60, "<s>", 0, added=True, with_bos=4.0, without_bos=2.0, standard_error=0.1)
UNSURE = InputCheck(60, "<s>", 0, added=False, with_bos=2.0, without_bos=2.2, standard_error=0.01)
NOISY = InputCheck(60, "<s>", 0, added=False, with_bos=2.0, without_bos=4.0, standard_error=0.9)


@pytest.mark.parametrize(
    ("check", "ids", "plain", "said"),
    [
        (WANTS, [5, 6], True, "does not begin with <s>, but with it"),
        (WANTS, [0, 6], True, None),
        (AVOIDS, [0, 6], True, "begins with <s>, but without it"),
        (AVOIDS, [5, 6], True, None),
        (UNSURE, [5, 6], True, None),
        (NOISY, [5, 6], True, None),
        (WANTS, [5, 6], False, None),  # a chat template begins in its own way
        (AVOIDS, [0, 6], False, None),
        (WANTS, [0, 0, 6], True, "begins with <s> twice"),
        (WANTS, [0, 0, 6], False, "begins with <s> twice"),
    ],
)
def test_a_prompt_that_begins_the_wrong_way_is_warned_of(
    check: InputCheck, ids: list[int], plain: bool, said: str | None
) -> None:
    warning = check.warning(ids, plain=plain)
    assert warning is None if said is None else said in (warning or "")


def test_losses_are_those_of_the_model_itself(tmp_path: Path) -> None:
    tiny.save_model(tmp_path, tiny.llama_config(initializer_range=0.3))
    lens = attnscope.load(str(tmp_path))
    check = lens.input_check
    ids = [token.id for token in lens.tokenize(PROBE)][:MOST]
    assert check.tokens == len(ids) == MOST

    def loss(given: list[int], counted: int) -> float:
        labels = [-100] * (len(given) - counted) + given[-counted:]
        with torch.no_grad():
            return float(lens.model(torch.tensor([given]), labels=torch.tensor([labels])).loss)

    assert check.without_bos == pytest.approx(loss(ids, MOST - 1), rel=LOGITS)
    assert check.with_bos == pytest.approx(loss([0, *ids], MOST - 1), rel=LOGITS)


@pytest.mark.parametrize(
    ("model_class", "changes", "bos", "reason"),
    [
        ("LlamaForTokenClassification", {"num_labels": 3}, None, "no language model head"),
        ("LlamaForSequenceClassification", {"num_labels": 3}, None, "no language model head"),
        ("LlamaModel", {}, None, "no language model head"),
        ("LlamaForCausalLM", {}, "<new>", "its tokenizer has token 259, and the model only 259 tokens"),
        ("LlamaForCausalLM", {"max_position_embeddings": 3}, None, "the text is too short"),
    ],
)
def test_a_model_without_a_loss_is_measured_and_says_why(
    tmp_path: Path, model_class: str, changes: dict[str, Any], bos: str | None, reason: str
) -> None:
    tiny.save_model(tmp_path, tiny.llama_config(**changes), model_class)
    if bos is not None:
        tokenizer = tiny.tokenizer()
        tokenizer.add_special_tokens({"bos_token": bos})
        tokenizer.save_pretrained(tmp_path)
    reading = attnscope.load(str(tmp_path)).measure("hi")
    assert reason in reading.evidence["input"]["reason"]
    assert reading.evidence["input"]["warning"] is None
