"""What a query rule declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field

from attnscope.spec import Spec
from attnscope.text.groups import GROUPS, rows_of
from attnscope.text.segments import Span, segments_of
from attnscope.text.tokens import Token

MOST = 1024
"""Groups of one study."""

_NUMBER = re.compile("(?<![0-9])[1-9][0-9]{0,3}(?![0-9])")

Groups = Mapping[int, Sequence[int]]
"""The positions of each group's queries, by the group's number from 1."""


@dataclass(frozen=True)
class Group:
    """A query group of a study. series, number: the series it belongs to and its place there, from 1, if any."""

    name: str
    series: str | None = None
    number: int | None = None


@dataclass(frozen=True)
class Prompt:
    """A tokenized prompt, with the rows of any group by name."""

    text: str
    tokens: Sequence[Token]
    spans: Sequence[Span] = ()
    answered: int = 0
    """As in `segments_of`."""

    @cached_property
    def segments(self) -> list[str]:
        """The segment of each token."""
        return segments_of(self.tokens, self.spans, self.answered)

    def rows(self, group: str) -> tuple[int, ...]:
        """The positions of a group's queries, in order; group: its name, or a selector of segments."""
        return rows_of(group, self.tokens, self.segments, self.spans)

    def about(self, group: str) -> list[tuple[int, Token]]:
        """A group's rows, each with the token it is about: its own, or the one it writes if the group is `writing`."""
        known = GROUPS.members.get(group)
        ahead = 0 if known is None else known.ahead
        return [(row, self.tokens[row + ahead]) for row in self.rows(group)]


class QueryRule(Spec):
    """One way to make query groups from a prompt: a single group, or a series of numbered ones.

    The class's docstring is its meaning in the docs; its fields are its keys in a study file, one of them `key`.
    """

    key: ClassVar[str]
    """The field that names it."""
    word: ClassVar[str | None] = None
    """What each group of a series is called, as in "token 3 of answer"; None if the rule makes a single group."""

    name: str | None = Field(
        None, min_length=1, max_length=80, description="What its groups are called: NAME, or NAME 1, NAME 2 and so on."
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        if getattr(cls, "key", None) not in cls.model_fields or not (cls.__doc__ or "").strip():
            raise ValueError(f"query rule {cls.__name__}: it needs a docstring and a field named by its key")

    @property
    def title(self) -> str:
        """What all its groups together are called, as in "tokens of answer"."""
        raise NotImplementedError

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        """The group or segment that it takes queries from, after the path to the key that names it."""
        raise NotImplementedError

    def groups(self, prompt: Prompt) -> Groups:
        """The groups of a prompt. One without queries need not be among them; a single group has the number 1."""
        raise NotImplementedError

    @property
    def around(self) -> tuple[str, str]:
        """What stands before and after the number in the names of a series' groups."""
        return (f"{self.word} ", f" of {self.source[1]}") if self.name is None else (f"{self.name} ", "")

    def group(self, number: int) -> Group:
        """Its group of this number."""
        if self.word is None:
            return Group(self.title)
        before, after = self.around
        return Group(f"{before}{number}{after}", self.title, number)


class Series:
    """The series of a study's queries, found by the names of their groups."""

    def __init__(self, queries: Iterable[str | QueryRule]) -> None:
        rules = [each for each in queries if isinstance(each, QueryRule) and each.word is not None]
        self._rules = {rule.around: rule for rule in rules}

    def of(self, name: str) -> QueryRule | None:
        """The series that may have a group of this name, if any; how many it has depends on the prompts."""
        for number in _NUMBER.finditer(name):
            rule = self._rules.get((name[: number.start()], name[number.end() :]))
            if rule is not None and int(number[0]) <= MOST:
                return rule
        return None


def sources_of(queries: Sequence[str | QueryRule]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The names of groups and segments that a study's queries use, each after the path to the key that names it."""
    for number, each in enumerate(queries):
        path, name = ((), each) if isinstance(each, str) else each.source
        yield (number, *path), name
