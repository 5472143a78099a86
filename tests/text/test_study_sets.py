"""The prompts of the bundled studies: balanced where their designs need it, of similar length, and no copies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from attnscope.errors import AttnscopeError
from attnscope.models.tokenization import Tokenization
from attnscope.text.copies import near_copies
from attnscope.text.sets import PROMPT_SETS
from attnscope.text.sets.prompt_set import stored_rows
from attnscope.text.values import read_value, text_of

SETS = PROMPT_SETS.members
SIZES = {"passages": 60, "contexts": 40, "chats": 30, "injections": 48, "needles": 40, "texts": 40}
CLUSTERS = {"passages": 15, "contexts": 8, "chats": 10, "injections": 8, "texts": 8}
LITTLE_WORDS = set(
    re.findall(r"\w+", "the a an of at in on to is was did does do are be as its it by for with and that")
)


def rows(name: str, **options: Any) -> list[dict[str, Any]]:
    return SETS[name].make(SIZES[name], 1, options)


def words(text: str) -> int:
    return len(text.split())


def content(text: str) -> set[str]:
    """Words that say something, for overlaps."""
    return set(re.findall(r"[a-z']+", text.lower())) - LITTLE_WORDS


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    else:
        for each in value:
            yield from strings(each)


@pytest.mark.parametrize("name", [*SIZES, "paragraphs"])
def test_a_set_is_plain_text(name: str) -> None:
    for text in strings(stored_rows(name)):
        assert text == text.strip()
        assert text.isprintable()
        assert text.isascii()
        assert "  " not in text


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_set_has_clusters_of_one_size(name: str) -> None:
    cluster = SETS[name].cluster
    assert cluster is not None
    sizes = Counter(row[cluster] for row in rows(name))
    assert len(sizes) == CLUSTERS[name]
    assert len(set(sizes.values())) == 1


@pytest.mark.parametrize("name", SIZES)
def test_a_study_that_does_not_say_how_many_gets_some(name: str) -> None:
    assert len(SETS[name].make(SETS[name].default, 0, {})) == SETS[name].default


@pytest.mark.parametrize("name", SIZES)
def test_a_seed_gives_the_same_prompts_and_too_many_or_unknown_options_are_refused(name: str) -> None:
    make = SETS[name].make
    assert make(12, 3, {}) == make(12, 3, {})
    assert make(20, 3, {})[:12] == make(12, 3, {})
    assert make(12, 3, {}) != make(12, 4, {})
    with pytest.raises(AttnscopeError, match=f"the set {name} does not have {SIZES[name] + 1}"):
        make(SIZES[name] + 1, 1, {})
    with pytest.raises(AttnscopeError, match=f"{name} has no option 'colour'"):
        make(3, 1, {"colour": "red"})


@pytest.mark.parametrize("name", [name for name in SIZES if name != "needles"])  # they share one haystack on purpose
def test_prompts_are_no_copies_of_each_other(name: str) -> None:
    fields = SETS[name].layouts.fields
    texts = []
    for row in rows(name):
        values = [read_value(row[field]) for field in fields]
        texts.append({field: text_of(value) for field, value in zip(fields, values, strict=True) if value is not None})
        assert len(texts[-1]) == len(fields)
    assert near_copies(texts) is None
    every = [" ".join(text.values()) for text in texts]
    assert len(set(every)) == len(every)


def test_no_passage_paragraph_or_needle_is_a_copy() -> None:
    for name, field in (("passages", "passage"), ("paragraphs", "paragraph"), ("needles", "needle")):
        stored = [{field: row[field]} for row in stored_rows(name)]
        assert near_copies(stored) is None
        assert len({row[field] for row in stored}) == len(stored)


def test_every_passage_is_gold_once_distractor_once_and_unrelated_twice() -> None:
    roles: dict[str, Counter[str]] = {}
    for row in rows("passages"):
        assert Counter(item["role"] for item in row["passages"]) == {"gold": 1, "distractor": 1, "unrelated": 2}
        for item in row["passages"]:
            roles.setdefault(item["text"], Counter())[item["role"]] += 1
    assert len(roles) == 60
    assert all(each == {"gold": 1, "distractor": 1, "unrelated": 2} for each in roles.values())


def test_gold_and_distractor_are_in_every_pair_of_places_equally_often() -> None:
    places: Counter[tuple[int, int]] = Counter()
    by_topic: dict[str, set[int]] = {}
    for row in rows("passages"):
        order = [item["role"] for item in row["passages"]]
        places[order.index("gold"), order.index("distractor")] += 1
        by_topic.setdefault(row["topic"], set()).add(order.index("gold"))
    assert len(places) == 12
    assert set(places.values()) == {5}
    assert all(each == {0, 1, 2, 3} for each in by_topic.values())


def test_an_answer_is_in_the_gold_passage_only_and_anywhere_in_it() -> None:
    thirds: Counter[int] = Counter()
    for row in rows("passages"):
        answer = row["answer"].lower()
        assert answer not in row["question"].lower()
        having = [item["role"] for item in row["passages"] if answer in item["text"].lower()]
        assert having == ["gold"], answer
        gold = next(item["text"].lower() for item in row["passages"] if item["role"] == "gold")
        thirds[int(3 * gold.index(answer) / len(gold))] += 1
    assert min(thirds.values()) >= 15


def test_passages_are_of_similar_length_and_the_distractor_sounds_right() -> None:
    overlaps: dict[str, list[float]] = {"gold": [], "distractor": [], "unrelated": []}
    for row in rows("passages"):
        asked = content(row["question"])
        for item in row["passages"]:
            assert 35 <= words(item["text"]) <= 60
            overlaps[item["role"]].append(len(asked & content(item["text"])) / len(asked))
    gold, distractor, unrelated = (sum(each) / len(each) for each in overlaps.values())
    assert min(overlaps["distractor"]) > 0  # each mentions what the question is about
    assert gold - distractor < 0.25
    assert unrelated < 0.03


def test_contexts_answers_and_questions_have_their_lengths() -> None:
    for row in rows("contexts"):
        assert 100 <= words(row["context"]) <= 160
        assert 60 <= words(row["answer"]) <= 90
        assert 3 <= len(re.findall(r"[.!?](?=\s|$)", row["answer"])) <= 5
        assert row["question"].endswith("?")
        named = set(re.findall(r"(?<=[a-z] )[A-Z][a-z]+|\b[0-9]{2,}\b", row["answer"]))
        assert named <= set(re.findall(r"\w+", row["context"])), named  # nothing that the context does not say


def test_chats_have_a_system_prompt_and_six_turns() -> None:
    bounds = {"system": (25, 50), "user": (8, 25), "assistant": (15, 40)}
    for row in rows("chats"):
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["system", *["user", "assistant"] * 6]
        for message in row["messages"]:
            low, high = bounds[message["role"]]
            assert low <= words(message["content"]) <= high, message["content"]


def test_replies_keep_the_rule_of_their_system_prompt() -> None:
    """Where the rule can be checked."""
    checked = 0
    for row in rows("chats"):
        system, *rest = (message["content"] for message in row["messages"])
        replies = rest[1::2]
        if row["kind"] == "closing line":
            (closing,) = re.findall(r'"([^"]+)"', system)
            assert all(reply.endswith(closing) for reply in replies)
            checked += 1
        elif '"Step:"' in system or '"Log:"' in system:
            label = "Step:" if '"Step:"' in system else "Log:"
            assert all(reply.startswith(label) for reply in replies)
            checked += 1
        elif "in exactly one sentence" in system:
            assert all(len(re.findall(r"[.!?](?=\s|$)", reply)) == 1 for reply in replies)
            checked += 1
        elif "Stay under thirty words" in system:
            assert all(words(reply) < 30 and re.search(r"\d", reply) for reply in replies)
            checked += 1
        elif '"my dear"' in system or '"sir or madam"' in system:
            (phrase,) = re.findall(r'"([^"]+)"', system)
            assert all(phrase in reply.lower() for reply in replies)
            checked += 1
    assert checked == 9


def test_injections_have_two_parts_and_two_sentences_of_one_length() -> None:
    for row in rows("injections"):
        assert len(row["data"]) == 2
        assert 50 <= words(" ".join(row["data"])) <= 90
        for part in row["data"]:
            assert part.endswith(".")
        share = len(row["data"][0]) / len(" ".join(row["data"]))
        assert 0.2 < share < 0.8
        both = row["injected"], row["control"]
        assert both[0] != both[1]
        assert content(both[0]) & content(both[1]), both  # as foreign: about the same things
        for sentence in both:
            assert sentence.endswith(".")
            assert len(content(sentence) & content(" ".join(row["data"]))) <= 3  # foreign to the text


def test_a_needle_is_in_its_haystack_once_and_its_answer_nowhere_else() -> None:
    for row in rows("needles", lengths=[4, 24, 96], depth=0.5):
        roles = [item["role"] for item in row["haystack"]]
        assert roles == [*["96", "24", "4"] * 2, "needle", *["96", "24", "4"] * 2]
        hay = [part for item in row["haystack"] if item["role"] != "needle" for part in item["text"].split("\n\n")]
        assert len(hay) == len(set(hay)) == 96
        needle = row["haystack"][6]["text"]
        assert row["answer"].lower() in needle.lower()
        assert row["answer"].lower() not in row["question"].lower()
        assert row["answer"].lower() not in " ".join(hay).lower()
    answers = [row["answer"].lower() for row in stored_rows("needles")]
    for row in stored_rows("needles"):
        assert sum(answer in row["needle"].lower() for answer in answers) == 1


def test_paragraphs_are_of_one_size() -> None:
    assert all(60 <= words(row["paragraph"]) <= 100 for row in stored_rows("paragraphs"))


def test_needles_of_one_kind_come_late() -> None:
    kinds = [row["kind"] for row in SETS["needles"].make(16, 5, {})]
    assert len(set(kinds[:8])) == len(set(kinds[8:])) == 8


@pytest.mark.parametrize(("depth", "place"), [(0, 0), (0.25, 1), (0.5, 2), (0.75, 3), (1, 4)])
def test_depth_puts_the_needle_between_quarters(depth: float, place: int) -> None:
    (row,) = SETS["needles"].make(1, 0, {"lengths": [8], "depth": depth})
    assert [item["role"] for item in row["haystack"]].index("needle") == place
    assert all(item["text"].count("\n\n") == 1 for item in row["haystack"] if item["role"] == "8")


@pytest.mark.parametrize(
    "options",
    [
        {"lengths": []},
        {"lengths": [6]},
        {"lengths": [0]},
        {"lengths": [100]},
        {"lengths": [8, 8]},
        {"lengths": 24},
        {"lengths": [True]},
        {"depth": 0.3},
        {"depth": True},
        {"depth": "middle"},
        {"length": [24]},
    ],
)
def test_haystacks_that_can_not_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AttnscopeError, match="needles") as refused:
        SETS["needles"].make(2, 0, options)
    assert refused.value.where == "prompts.options"


def test_texts_begin_with_different_words_and_their_parts_make_them_whole() -> None:
    cut = rows("texts")
    assert len({row["first"] for row in cut}) == 40
    assert {row["first"] + row["opening"] + row["rest"] for row in cut} == {row["text"] for row in stored_rows("texts")}
    assert all(60 <= words(row["text"]) <= 120 for row in stored_rows("texts"))
    assert all(words(row["opening"]) == 3 and " " not in row["first"] for row in cut)


def test_answers_and_insertions_have_their_tokens(smollm2_tokenization: Tokenization) -> None:
    def tokens(text: str) -> int:
        return len(smollm2_tokenization.tokenize(text))

    for row in rows("passages"):
        assert 1 <= tokens(row["answer"]) <= 6
    for row in stored_rows("needles"):
        assert 2 <= tokens(row["answer"]) <= 8
    for row in rows("injections"):
        assert tokens(". " + row["injected"]) == tokens(". " + row["control"])
    longest = SETS["needles"].make(1, 1, {"lengths": [96]})[0]
    assert 7900 < tokens("\n\n".join(item["text"] for item in longest["haystack"])) < 8100
