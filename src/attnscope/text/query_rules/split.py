"""A segment in the parts between separators: `split: {of: answer, at: "\\n\\n"}`, for the steps of an argument."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from attnscope.spec import Spec
from attnscope.text.query_rules.rule import Groups, Prompt, QueryRule


class SplitOf(Spec):
    """What is split, and where."""

    of: str = Field(min_length=1, description="A segment or query group.")
    at: str = Field(min_length=1, description="The text that ends a part, such as an empty line.")


class Split(QueryRule):
    """The tokens of a segment or group, split where a text occurs: the steps of an argument, the lines of a list.

    A token belongs to the part that its first character is in, one without characters to that of the token before it.
    The separator belongs to the part it ends.
    """

    key: ClassVar[str] = "split"
    word: ClassVar[str | None] = "part"

    split: SplitOf = Field(description="What is split, and where.")

    @property
    def title(self) -> str:
        return self.name or f"parts of {self.split.of}"

    @property
    def source(self) -> tuple[tuple[str, ...], str]:
        return ("split", "of"), self.split.of

    def groups(self, prompt: Prompt) -> Groups:
        about = prompt.about(self.split.of)
        if not about:
            return {}
        first, beyond = min(token.start for _, token in about), max(token.end for _, token in about)
        ends = _ends(prompt.text, self.split.at, first, beyond)
        starts = [token.start if token.end > token.start else -1 for _, token in about]
        starts = np.maximum.accumulate(starts).tolist()  # a token without characters goes with the one before it
        part_of = np.searchsorted(ends, starts, side="right")
        numbers = {part: number for number, part in enumerate(np.unique(part_of), start=1)}
        groups: dict[int, list[int]] = {}
        for (row, _), part in zip(about, part_of, strict=True):
            groups.setdefault(numbers[part], []).append(row)
        return groups


def _ends(text: str, separator: str, first: int, beyond: int) -> list[int]:
    """The positions after each separator between two positions."""
    ends, at = [], text.find(separator, first, beyond)
    while at >= 0:
        ends.append(at + len(separator))
        at = text.find(separator, ends[-1], beyond)
    return ends
