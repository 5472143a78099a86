"""The page of one prompt: its text token by token, with the attention each token receives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from attnscope.analysis.dense import token_rows
from attnscope.analysis.received import HeadChoice, read_attention
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.explorer.responses import PromptText, TokenFacts
from attnscope.explorer.views.choices import check_name
from attnscope.figures import selection, sentences
from attnscope.figures.kinds.strip import StripOptions
from attnscope.text.classes import membership
from attnscope.text.segments import TEMPLATE, Span
from attnscope.text.tokens import Token, shown_texts

MOST_TOKENS = 3000  # of a prompt in one response
MOST_CHARACTERS = 400  # of a token
HIGHEST = 8  # tokens that the reading names


@dataclass(frozen=True)
class PromptChoice:
    """Which prompt, under which condition, through which head; without a head, the mean over all."""

    prompt: int
    model: str
    condition: str
    queries: str
    layer: int | None = None
    head: int | None = None
    over: Literal["visible", "all"] = "visible"
    first: int = 0
    """The first token to send; a long prompt is sent in parts."""

    def check(self, run: Run) -> None:
        check_name(self.model, run.models, "model")
        check_name(self.condition, run.conditions, "condition")
        check_name(self.queries, [group.name for group in run.groups], "queries")

    def spec(self) -> StripOptions:
        """The same choice as a figure of a study."""
        return StripOptions(
            name="prompt",
            kind="strip",
            models=[self.model],
            conditions=[self.condition],
            queries=self.queries,
            layers="all" if self.layer is None else [self.layer],
            heads="all" if self.head is None else [self.head],
            prompt=self.prompt,
            over=self.over,
        )


@dataclass(frozen=True)
class _Cell:
    """One prompt as a model got it. attention: per token, NaN where no query sees it; base: position in the base."""

    name: str
    text: str
    tokens: list[Token]
    segments: list[str]
    spans: list[Span]
    attention: np.ndarray[Any, Any]
    base: np.ndarray[Any, Any]


def prompt_text(run: Run, choice: PromptChoice) -> PromptText:
    choice.check(run)
    numbers = sorted(run.prompts(choice.model, choice.condition))
    if choice.prompt not in numbers:
        raise AttnscopeError(
            f"prompt {choice.prompt} was not measured on {choice.model} under {choice.condition}",
            where="prompt",
            allowed=f"prompts from {numbers[0]} to {numbers[-1]}" if numbers else "none so far",
            todo="choose another",
        )
    spec = choice.spec()
    cell = _read_cell(run, choice, spec)
    tokens = list(_token_facts(run, cell))
    highest, second = _two_highest(cell.attention)
    place = numbers.index(choice.prompt)
    return PromptText(
        number=choice.prompt,
        name=cell.name,
        model=choice.model,
        condition=choice.condition,
        caption=f"Attention from {selection.group_words(choice.queries)}, mean over "
        f"{selection.layers_words(run, spec, [choice.model])} and {selection.heads_words(run, spec)}.",
        tokens=tokens[choice.first : choice.first + MOST_TOKENS],
        first=min(choice.first, len(tokens)),
        count=len(tokens),
        highest=highest,
        top=second,
        segments=list(dict.fromkeys(cell.segments)),
        reading=_reading(tokens),
        previous=numbers[place - 1] if place else None,
        next=numbers[place + 1] if place + 1 < len(numbers) else None,
    )


def _two_highest(attention: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The highest attention that any token receives, and the second highest."""
    seen = np.sort(attention[~np.isnan(attention)])[::-1]
    return (float(seen[0]), float(seen[min(1, len(seen) - 1)])) if len(seen) else (0.0, 0.0)


def _read_cell(run: Run, choice: PromptChoice, spec: StripOptions) -> _Cell:
    layers, heads = selection.layers(run, spec, choice.model), selection.heads(run, spec, choice.model)
    chosen = HeadChoice(choice.model, choice.queries, layers, heads, spec.over)
    received = next(read_attention(run, chosen, choice.condition, choice.prompt))
    columns = ["position", "token_id", "text", "start", "end", "special", "segment"]
    rows = token_rows(run, choice.model, choice.condition, columns, choice.prompt)
    row = run.rows("prompts", choice.model, choice.condition, ["name", "text", "spans"], choice.prompt).row(
        0, named=True
    )
    return _Cell(
        name=row["name"],
        text=row["text"],
        tokens=[Token(*each) for each in rows.drop("segment").iter_rows()],
        segments=rows["segment"].to_list(),
        spans=[Span(**span) for span in row["spans"]],
        attention=mean_of_seen(received.attention, (0, 1)),
        base=received.base,
    )


def _token_facts(run: Run, cell: _Cell) -> Iterator[TokenFacts]:
    shown = shown_texts((token.text, token.start, token.end) for token in cell.tokens)
    shares = membership(run.study.rules, cell.text, cell.tokens, cell.spans)
    shared = _shared_keys(cell)
    for place, token in enumerate(cell.tokens):
        attention, base = cell.attention[place], cell.base[place]
        yield TokenFacts(
            position=token.position,
            text=shown[place][:MOST_CHARACTERS],
            length=len(shown[place]),
            attention=None if np.isnan(attention) else float(attention),
            segment=cell.segments[place],
            base=None if base < 0 else int(base),
            shared=shared[place],
            classes=[name for name, share in zip(run.classes, shares[:, place], strict=True) if share > 0],
        )


def _shared_keys(cell: _Cell) -> list[str | None]:
    """A key per token that is the same under other conditions and in other models.

    It is the token's place in its segment; for the template's tokens, which have no segment, their base position.
    """
    lengths: dict[str, int] = {}
    shift = {}
    for span in cell.spans:
        shift[span.start] = lengths.get(span.segment, 0) - span.start
        lengths[span.segment] = lengths.get(span.segment, 0) + span.end - span.start
    starts = sorted(shift)
    keys: list[str | None] = []
    for place, token in enumerate(cell.tokens):
        if cell.base[place] < 0:
            keys.append(None)
        elif cell.segments[place] == TEMPLATE or token.start == token.end:
            keys.append(f"{cell.base[place]} {token.text[:MOST_CHARACTERS]}")
        else:
            offset = shift[starts[max(0, bisect_right(starts, token.start) - 1)]]
            keys.append(f"{cell.segments[place]} {token.start + offset} {token.end + offset}")
    return keys


def _reading(tokens: Sequence[TokenFacts]) -> list[str]:
    """Where most of the attention is, token by token and segment by segment."""
    seen = [token for token in tokens if token.attention is not None]
    if not seen:
        return ["No query sees any of these tokens."]
    highest = sorted(seen, key=lambda token: -(token.attention or 0))[:HIGHEST]
    named = [f"{token.text[:30]!r} at {token.position} {sentences.number(token.attention or 0)}" for token in highest]
    by_segment: dict[str, list[float]] = {}
    for token in seen:
        by_segment.setdefault(token.segment, []).append(token.attention or 0)
    means = [
        f"{name} {sentences.number(float(np.mean(each)))} ({sentences.counted(len(each), 'token')})"
        for name, each in by_segment.items()
    ]
    return [f"Highest: {sentences.listed(named)}.", f"Mean per token, by segment: {'; '.join(means)}."]
