"""Prompts that are near copies of each other, which statistics would take for independent.

Two prompts are linked if half of the shorter one's phrases, three words each, occur in the other; numbers are all the
same word, so that problems made from one template are linked. Phrases that most prompts have, such as an instruction's,
don't count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import regex
from scipy import sparse

PHRASE = 3  # words
COMMON = 0.5  # of the prompts: a phrase that more of them have is no sign of a copy
LINKED = 0.5  # of the shorter prompt's phrases
FEWEST = 3  # phrases; shorter prompts are not judged
MOST = 4000  # prompts looked at
WORTH_A_WARNING = 0.9  # of the prompts: with more groups than this, copies hardly matter
_WORD = regex.compile(r"\p{L}+|\p{N}+")


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
    phrases = [_phrases("\n".join(prompt.values())) for prompt in shown]
    spread = Counter(phrase for each in phrases for phrase in each)
    rare = [{phrase for phrase in each if spread[phrase] <= max(2, COMMON * len(shown))} for each in phrases]
    groups = _groups(rare)
    count = len(set(groups))
    if count > WORTH_A_WARNING * len(shown):
        return None
    return Copies(len(shown), count, _field(shown, groups))


def _phrases(text: str) -> set[tuple[str, ...]]:
    words = ["0" if word[0].isnumeric() else word.casefold() for word in _WORD.findall(text)]
    return set(zip(*(words[start:] for start in range(PHRASE)), strict=False))


def _groups(phrases: Sequence[set[tuple[str, ...]]]) -> list[int]:
    """The group of each prompt: those that links connect."""
    places = {phrase: place for place, phrase in enumerate(sorted(set().union(*phrases)))}
    rows = [row for row, each in enumerate(phrases) for _ in each]
    columns = [places[phrase] for each in phrases for phrase in sorted(each)]
    has = sparse.csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(len(phrases), len(places)))
    both = (has @ has.T).tocoo()
    sizes = np.array([len(each) for each in phrases])
    one, two = both.coords
    fewer = np.minimum(sizes[one], sizes[two])
    linked = (fewer >= FEWEST) & (both.data >= LINKED * fewer)
    links = sparse.csr_array((np.ones(int(linked.sum())), (one[linked], two[linked])), shape=both.shape)
    _, groups = sparse.csgraph.connected_components(links, directed=False)
    numbers: list[int] = groups.tolist()
    return numbers


def _field(prompts: Sequence[Mapping[str, str]], groups: Sequence[int]) -> str | None:
    """The field whose values tell the groups apart."""
    for name in dict.fromkeys(key for prompt in prompts for key in prompt):
        values = [prompt.get(name, "") for prompt in prompts]
        if len(set(values)) == len(set(groups)) == len(set(zip(values, groups, strict=True))):
            return name
    return None
