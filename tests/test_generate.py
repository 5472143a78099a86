"""A lens lets its model write: texts and chats in, answers out, the same ones alone and in a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import attnscope
from attnscope import AttnscopeError, Lens, Sample
from tests.attention.test_proof import lens_on, llama
from tests.runs.conftest import CHAT

TEXTS = ["a # b", "a longer text with * and # in it, and more of both", "c"]
SAMPLE = Sample(temperature=0.9, top_p=0.95)


@pytest.fixture(scope="module")
def lens() -> Lens:
    model: Any = llama()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    made = lens_on(model)
    made.tokenizer.chat_template = CHAT
    return made


def test_an_answer_has_its_text_its_tokens_and_its_prompt(lens: Lens) -> None:
    answer = lens.generate("a # b", 8)
    assert answer.prompt == "a # b"
    assert answer.prompt_ids == [token.id for token in lens.tokenize("a # b")]
    assert (len(answer.ids), answer.ended) == (8, False)
    assert str(answer) == answer.text
    assert lens.tokenizer.decode([*answer.prompt_ids, *answer.ids]).endswith(answer.text)
    record = lens.measure_tokens([*answer.prompt_ids, *answer.ids])
    assert len(record.tokens) == len(answer.prompt_ids) + 8
    given = torch.tensor([answer.prompt_ids])
    made = lens.model.generate(given, max_new_tokens=8, do_sample=False, pad_token_id=0)  # type: ignore[operator]
    assert made[0, given.shape[1] :].tolist() == answer.ids


@pytest.mark.parametrize("sample", [False, True, SAMPLE])
def test_a_batch_has_the_answers_of_each_text_alone(lens: Lens, sample: Any) -> None:
    together = lens.generate_batch(TEXTS, 9, sample=sample, seed=5)
    assert together == [lens.generate(text, 9, sample=sample, seed=5 + place) for place, text in enumerate(TEXTS)]
    assert together[::-1] == lens.generate_batch(TEXTS[::-1], 9, sample=sample, seed=[7, 6, 5])
    tokens = [
        lens.generate_tokens(each.prompt_ids, 9, sample=sample, seed=seed) for seed, each in enumerate(together, 5)
    ]
    assert [each.ids for each in tokens] == [each.ids for each in together]


def test_another_seed_gives_another_answer_and_the_same_the_same(lens: Lens) -> None:
    answers = [lens.generate(TEXTS[0], 9, sample=True, seed=seed).ids for seed in (1, 2, 1)]
    assert answers[0] == answers[2] != answers[1]
    assert lens.generate(TEXTS[0], 9, seed=1) == lens.generate(TEXTS[0], 9, seed=2)


def test_chats_go_through_the_models_template(lens: Lens) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    chat, text, plain = lens.generate_batch([messages, "Hi"], 4, chat=True) + lens.generate_batch(["Hi"], 4)
    assert chat.prompt == "<s>system\nBe brief.</s>\n<s>user\nHi</s>\n<s>assistant\n"
    assert text.prompt == "<s>user\nHi</s>\n<s>assistant\n" == lens.render("Hi")
    assert plain.prompt == "Hi"
    assert lens.generate(messages, 4) == chat
    assert chat.prompt_ids == [token.id for token in lens.tokenize(chat.prompt, chat=True)]


def test_an_answer_ends_at_the_end_of_the_context(lens: Lens) -> None:
    context = lens.loaded.context
    assert context is not None
    answers = [lens.generate_tokens([5] * (context - left), 4) for left in (2, 0)]
    assert [(len(each.ids), each.ended) for each in answers] == [(2, False), (0, False)]
    assert answers[1].text == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample": 0.8}, r"sample is of type float.*attnscope.Sample\(temperature=0.8\)"),
        ({"sample": {"temperature": 1}}, "sample is of type dict"),
        ({"seed": -1}, "seed can't be -1"),
        ({"seed": [1, 2]}, "2 seeds are given for 1 prompts"),
        ({"seed": [0.5]}, "seed can't be 0.5"),
        ({"tokens": 0}, "tokens can't be 0"),
    ],
)
def test_what_is_no_way_to_write_is_refused(lens: Lens, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        lens.generate(TEXTS[0], **options)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("a text", "the prompts are a str.*goes to generate"),
        ([], "there are no prompts"),
        ([{"role": "user", "content": "a"}], "messages of one chat.*goes to generate"),
        ([3], "text is of type int.*generate_tokens"),
        ([[1, 2]], "text is of type list"),
        ([[{"role": "user"}]], "role and its content"),
        ([[{"role": "user", "content": 3}]], "content is of type int"),
        ([""], "empty"),
    ],
)
def test_what_is_no_list_of_texts_or_chats_is_refused(lens: Lens, texts: Any, words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        lens.generate_batch(texts)


@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_p": 1.5}, {"top_k": 0}, {"temperature": np.inf}])
def test_samples_have_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        attnscope.Sample(**options)
