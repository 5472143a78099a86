"""Keys hidden from queries: `hide: segment:passages, queries: last, layers: [8, 9]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from attnscope.edits.attention.edit import AttentionEdit, Chosen, Numbers, each_once
from attnscope.errors import AttnscopeError
from attnscope.text.classes import membership, parse_rule
from attnscope.text.groups import rows_of
from attnscope.text.rules import Tokenized
from attnscope.text.segments import ANSWER, Selector, segments_of

ROUNDING = 1e-5  # of a row's sum; anything missing beyond it goes to a sink
MOST = 0.5  # a token belongs to a hidden class if more than this share of its characters does


class Hide(AttentionEdit):
    """Hides keys from queries, as if they were masked; a query's attention on itself can be hidden too."""

    key: ClassVar[str] = "hide"
    control_words: ClassVar[str] = "as many random tokens"
    words: ClassVar[Mapping[str, str]] = {"keys": "hide", "from": "queries"}

    hide: Numbers | str = Field(
        description="The keys: positions from 0, or a class rule such as segment:passages, which hides tokens with "
        "more than half of their characters in the class."
    )
    queries: Numbers | str = Field(
        "all", description="The queries they are hidden from: positions from 0, or a query group."
    )
    heads: Chosen = Field("all", description="all, or numbers from 0.")
    how: Literal["renormalise", "zero"] = Field(
        "renormalise",
        description="renormalise: the other keys share the hidden keys' attention in proportion, as with a mask. "
        "zero: the rest stays unchanged, so rows sum to less than one. A row without visible keys becomes all zeros.",
    )

    @field_validator("hide", "queries", "heads")
    @classmethod
    def _numbers(cls, data: Any) -> Any:
        return data if isinstance(data, str) else each_once(data)

    @field_validator("hide")
    @classmethod
    def _rule(cls, data: Any) -> Any:
        if isinstance(data, str):
            try:
                parse_rule(data)
            except AttnscopeError as error:
                raise PydanticCustomError("one_of", "{why}", {"why": error.what, "near": error.allowed}) from None
        return data

    @property
    def key_positions(self) -> tuple[int, ...]:
        """Of a placed edit: the hidden keys."""
        return _positions(self.hide)

    @property
    def query_positions(self) -> tuple[int, ...]:
        """Of a placed edit: the queries they are hidden from."""
        return _positions(self.queries)

    def placed(self, prompt: Tokenized) -> Self:
        keys, queries = self.hide, self.queries
        if isinstance(keys, str):
            shares = membership({"hidden": keys}, prompt.text, prompt.tokens, prompt.spans)[0]
            keys = tuple(token.position for token in prompt.tokens if shares[token.position] > MOST)
            _refuse_if_none(keys, f"hide: {self.hide}", "a class that some token belongs to")
        if isinstance(queries, str):
            segments = segments_of(prompt.tokens, prompt.spans, prompt.answered)
            queries = rows_of(queries, prompt.tokens, segments, prompt.spans)
            _refuse_if_none(queries, f"queries: {self.queries}", "a query group or segment with at least one token")
        for position in (*keys, *queries):
            if position >= len(prompt.tokens):
                raise AttnscopeError(
                    f"there is no token {position}",
                    where="hide",
                    allowed=f"0 to {len(prompt.tokens) - 1}",
                    todo="give positions in the prompt",
                )
        return self.model_copy(update={"hide": keys, "queries": queries})

    def control(self, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> Self | None:
        """As many other keys, from the narrowest circle that has enough; see `circles`."""
        drawn: list[int] = []
        for keys, circles in self.circles(prompt):
            free = ([key for key in circle if key not in drawn] for circle in circles)
            enough = next((circle for circle in free if len(circle) >= len(keys)), None)
            if enough is None:
                return None
            drawn += rng.sample(enough, len(keys))
        return self.model_copy(update={"hide": tuple(sorted(drawn))}) if drawn else None

    def circles(self, prompt: Tokenized) -> list[tuple[list[int], list[list[int]]]]:
        """Of a placed edit: hidden keys of one kind, and other keys like them, for each kind of key.

        First those of the same segment, then those of its list (other passages, if it is one), then all of the prompt;
        special tokens for special tokens, and others for others. Only keys that some of the queries can see count. The
        first token, on which many heads leave what attention they don't need, is not among the others, nor are tokens
        of the answer, unless one of these is hidden.
        """
        hidden, last = set(self.key_positions), max(self.query_positions)
        segments = segments_of(prompt.tokens, prompt.spans, prompt.answered)
        seen = [token for token in prompt.tokens if token.position <= last]
        kinds: dict[tuple[str, bool], list[int]] = {}
        for token in seen:
            if token.position in hidden:
                kinds.setdefault((segments[token.position], token.special), []).append(token.position)
        found = []
        for (segment, special), keys in kinds.items():
            alike = [token.position for token in seen if token.special == special and token.position not in hidden]
            others = [key for key in alike if key > 0 and (segment == ANSWER or segments[key] != ANSWER)]
            family = segment.partition(".")[0]
            within = [segment, family] if "." in segment else [segment]
            circles = [[key for key in others if Selector(name).covers(segments[key])] for name in within]
            found.append((keys, [*circles, others]))
        return found

    def weights(self, weights: Any, layer: int, heads: Sequence[int], q: Any, k: Any) -> Any:
        hidden = _among(q, self.query_positions)[:, None] & _among(k, self.key_positions)[None, :]
        changed = weights.clone()
        for place, head in enumerate(heads):
            if self.heads == "all" or head in self.heads:
                left = weights[place].masked_fill(hidden, 0)
                if self.how == "renormalise":
                    left = _renormalised(left, weights[place]).where(hidden.any(-1, keepdim=True), left)
                changed[place] = left
        return changed


def _renormalised(left: Any, before: Any) -> Any:
    """Rows as a mask would give them. A sink keeps its share, so rows may sum to less than one."""
    sink = 1 - before.sum(-1, keepdim=True)
    sink = sink.where(sink > ROUNDING, sink.new_zeros(()))
    return left / (left.sum(-1, keepdim=True) + sink).clamp(min=1e-38)


def _among(places: Any, wanted: Sequence[int]) -> Any:
    """True where a position is one of those wanted."""
    return (places[:, None] == places.new_tensor(list(wanted))[None, :]).any(-1)


def _positions(numbers: Any) -> tuple[int, ...]:
    if isinstance(numbers, str):
        raise TypeError("an edit has positions once it is placed in a prompt")
    return tuple(numbers)


def _refuse_if_none(positions: Sequence[int], where: str, allowed: str) -> None:
    if not positions:
        raise AttnscopeError("it matches no token", where=where, allowed=allowed, todo="choose another")
