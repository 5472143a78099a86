"""Prompts that are near copies of each other."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from attnscope.edits.sources.sentence import Sentence
from attnscope.edits.sources.source import SourceContext
from attnscope.study.independence import dependence
from attnscope.study.prompts import read_prompts
from attnscope.study.schema import PromptsSpec, Study
from attnscope.text.copies import near_copies
from attnscope.text.sets import PROMPT_SETS

PROBLEMS = [row["question"] for row in PROMPT_SETS.members["problems"].make(40, 1, {})]
QUESTIONS = [each for each in PROBLEMS if not each.startswith("What comes next")][:20]  # those are of one template


def sentence(number: int) -> str:
    return Sentence(sentence="random").draft(12, Random(number), SourceContext({}, []))  # noqa: S311


def test_each_question_with_two_sentences_is_noticed_and_the_field_named() -> None:
    prompts = [{"note": sentence(2 * n + k), "question": q} for n, q in enumerate(QUESTIONS) for k in range(2)]
    copies = near_copies(prompts)
    assert copies is not None
    assert (copies.prompts, copies.groups, copies.field) == (40, 20, "question")
    warning = dependence(PromptsSpec(items=prompts), prompts)
    assert warning is not None
    assert "cluster: question" in warning
    assert dependence(PromptsSpec(items=prompts, cluster="question"), prompts) is None


def test_the_same_in_one_field_is_noticed_too() -> None:
    copies = near_copies([{"text": f"{q} {sentence(k)}"} for q in QUESTIONS[:8] for k in range(5)])
    assert copies is not None
    assert copies.groups <= 8


@pytest.mark.parametrize("template", ["A field is {} metres long and {} metres wide. How large is it?"])
def test_one_template_with_other_numbers_is_one_prompt(template: str) -> None:
    others = [{"q": question} for question in QUESTIONS[:10]]
    copies = near_copies([*others, *({"q": template.format(n, 2 * n)} for n in range(5, 15))])
    assert copies is not None
    assert copies.groups == 11


@pytest.mark.parametrize("name", PROMPT_SETS.members)
def test_bundled_sets_without_clusters_are_no_copies(name: str) -> None:
    made = PROMPT_SETS.members[name]
    rows = [{field: str(row[field]) for field in made.layouts.fields} for row in made.make(made.default, 1, {})]
    assert dependence(PromptsSpec(set=name), rows) is None


def test_a_long_instruction_that_all_share_does_not_make_them_copies() -> None:
    long = "Read what follows with care, think about it step by step, and answer in one line without further words."
    assert near_copies([{"text": f"{long} {question}"} for question in QUESTIONS]) is None
    assert near_copies([{"text": "one"}]) is None


def test_one_template_for_all_prompts_and_prompts_that_differ_in_spelling_are_noticed() -> None:
    chance = Random(0)  # noqa: S311
    sums = [{"q": f"What is {chance.randint(2, 99)} plus {chance.randint(2, 99)}? One line."} for _ in range(40)]
    found = near_copies(sums)
    assert found is not None
    assert found.groups == 1
    spelled = [
        "Capital of France?",
        "capital of France?",
        " Capital of  France",
        "Capital, of France ?",
        "Capital of France!",
    ]
    found = near_copies([{"q": each.replace("France", name)} for name in ("France", "Spain") for each in spelled])
    assert found is not None
    assert found.groups == 2


def test_prompts_that_differ_in_spelling_alone_are_one_cluster(tmp_path: Path) -> None:
    spelled = ["Capital of France?", "capital of  France", "Capital of Spain?", "# . .", ". # ."]
    study = Study.model_validate({"models": ["m"], "prompts": {"items": [{"q": each} for each in spelled]}})
    clusters = [prompt.cluster for prompt in read_prompts(study, tmp_path).prompts]
    assert clusters == ["0", "0", "2", "3", "4"]  # signs are no punctuation
