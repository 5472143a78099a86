"""Prompts that are near copies of each other, which statistics would take for independent.

Two prompts are linked if half of the shorter one's phrases, three words each, occur in the other, or if they have a
field in common; numbers are all the same word, so that problems made from one template are linked. Phrases that most
prompts have, such as an instruction's, don't count. Prompts that are the same from the first word to the last, but for
numbers, are linked in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex
from scipy import sparse

PHRASE = 3  # words
COMMON = 0.5  # of the prompts: a phrase that more of them have is no sign of a copy
LINKED, SAME = 0.5, 0.9  # of the phrases of the shorter prompt, of the shorter field
FEWEST = 3  # phrases; shorter prompts are not judged
MOST = 4000  # prompts looked at
WORTH_A_WARNING = 0.9  # of the prompts: with more groups than this, copies hardly matter
_WORD = regex.compile(r"\p{L}+|\p{N}+")
_NUMBER = regex.compile(r"\p{N}+(?:[.,]\p{N}+)*")
_AFTER_WORDS = regex.compile(r"(?<=[\p{L}\p{N}])[.,;:!?]+(?=\s|$)")


@dataclass(frozen=True)
class Copies:
    """prompts: how many were looked at; groups: how many remain if linked ones count as one."""

    prompts: int
    groups: int
    field: str | None
    """A field with one value for each group, if there is one."""


def near_copies(prompts: Sequence[Mapping[str, str]]) -> Copies | None:
    """Whether too many prompts, given by their fields, are near copies of each other."""
    shown = prompts[:MOST]
    if len(shown) < 2:
        return None
    texts = ["\n".join(prompt.values()) for prompt in shown]
    links = _links(texts, LINKED) + _alike(texts)
    for name in dict.fromkeys(key for prompt in shown for key in prompt):
        links = links + _links([prompt.get(name, "") for prompt in shown], SAME)
    _, numbers = sparse.csgraph.connected_components(links, directed=False)
    groups: list[int] = numbers.tolist()
    count = len(set(groups))
    if count > WORTH_A_WARNING * len(shown):
        return None
    return Copies(len(shown), count, _field(shown, groups))


def same_prompt(text: str) -> str:
    """A text without what does not make it another one: case, spaces, and punctuation after words."""
    plain = _AFTER_WORDS.sub("", " ".join(text.casefold().split()))
    return plain.rstrip("?! ") or plain


def _alike(texts: Sequence[str]) -> Any:
    """(texts, texts): not zero where two are the same but for numbers; each is linked with the first of its kind."""
    firsts: dict[str, int] = {}
    first = [firsts.setdefault(_NUMBER.sub("0", same_prompt(text)), place) for place, text in enumerate(texts)]
    ones = np.ones(len(texts))
    return sparse.csr_array((ones, (np.arange(len(texts)), first)), shape=(len(texts), len(texts)))


def _phrases(text: str) -> set[tuple[str, ...]]:
    words = ["0" if word[0].isnumeric() else word.casefold() for word in _WORD.findall(text)]
    return set(zip(*(words[start:] for start in range(PHRASE)), strict=False))


def _links(texts: Sequence[str], enough: float) -> Any:
    """(texts, texts): not zero where the shorter of two has this share of its phrases in common with the other."""
    every = [_phrases(text) for text in texts]
    spread = Counter(phrase for each in every for phrase in each)
    phrases = [{phrase for phrase in each if spread[phrase] <= max(2, COMMON * len(texts))} for each in every]
    places = {phrase: place for place, phrase in enumerate(sorted(set().union(*phrases)))}
    rows = [row for row, each in enumerate(phrases) for _ in each]
    columns = [places[phrase] for each in phrases for phrase in sorted(each)]
    has = sparse.csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(len(phrases), len(places)))
    both = (has @ has.T).tocoo()
    sizes = np.array([len(each) for each in phrases])
    one, two = both.coords
    fewer = np.minimum(sizes[one], sizes[two])
    linked = (fewer >= FEWEST) & (both.data >= enough * fewer)
    return sparse.csr_array((np.ones(int(linked.sum())), (one[linked], two[linked])), shape=both.shape)


def _field(prompts: Sequence[Mapping[str, str]], groups: Sequence[int]) -> str | None:
    """The field whose values tell the groups apart."""
    for name in dict.fromkeys(key for prompt in prompts for key in prompt):
        values = [prompt.get(name, "") for prompt in prompts]
        if len(set(values)) == len(set(groups)) == len(set(zip(values, groups, strict=True))):
            return name
    return None
