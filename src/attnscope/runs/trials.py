"""Trials: one per (model, condition, prompt), an answer under every variant. Made from cells, without a model.

Which tokens a variant hides in a prompt is settled here, also those that controls draw; so a trial is data, and every
engine gets the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.hide import MOST, Hide
from attnscope.errors import AttnscopeError, StoppingError, near
from attnscope.lens.intervening import Answered
from attnscope.models.tokenization import Tokenization
from attnscope.runs.cells import Cell
from attnscope.runs.sources import Sources
from attnscope.runs.variants import Head, Variant
from attnscope.study.borrowed import Borrowed
from attnscope.study.interventions import MATCHED
from attnscope.study.schema import Study
from attnscope.text.classes import OTHER, membership, set_membership
from attnscope.text.groups import rows_of
from attnscope.text.groups.last import LAST
from attnscope.text.query_rules import Prompt as QueryPrompt
from attnscope.text.query_rules import groups_of
from attnscope.text.rules import Tokenized
from attnscope.text.rules.segment import SEGMENT
from attnscope.text.segments import ANSWER, Span
from attnscope.text.tokens import Token
from attnscope.text.values import Items

Placed = tuple[AttentionEdit, ...] | None

Received = Callable[[Sequence[int] | None, Sequence[int] | None], NDArray[np.float64]]
"""(layers, heads; None for all) -> (tokens,): the attention that each token receives there, from the first group."""


@dataclass(frozen=True)
class Place:
    """A variant that a trial has: which intervention it is, where in its sweep, and how much is changed."""

    intervention: str
    layer: int | None
    head: int | None
    token_class: str | None
    edited: int


@dataclass(frozen=True)
class Trial:
    """A prompt, its answer and other choices, and what is changed in each variant."""

    cell: Cell
    answers: tuple[Answered, ...]
    """The answer first, then the choices."""
    places: tuple[Place, ...]
    edits: tuple[tuple[tuple[AttentionEdit, ...], ...], ...]
    """By answer and variant, with positions."""

    @property
    def size(self) -> int:
        """How many tokens go through the model, if none of its layers are used again."""
        return sum(len(answer.ids) for answer in self.answers) * (1 + len(self.places))


def trial_key(facts: Mapping[str, object], trial: Trial) -> str:
    """The hash of everything a trial's numbers depend on. facts: about the model."""
    content = {
        **facts,
        "answers": [[answer.ids, answer.start] for answer in trial.answers],
        "places": [list(vars(place).values()) for place in trial.places],
        "edits": [
            [[[edit.key, edit.model_dump(mode="json")] for edit in edits] for edits in variants]
            for variants in trial.edits
        ],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TrialMaker:
    """Makes the trials of one model. heads: how many each layer has."""

    study: Study
    heads: Mapping[int, int]
    variants: Sequence[Variant]
    sources: Sources
    answers: Answers

    def trial(self, cell: Cell, received: Received) -> Trial:
        """A cell's trial."""
        places, edits, answers = [], [], self.answers(cell)
        drawn: dict[tuple[Any, ...], list[Placed]] = {}
        for variant in self.variants:
            placed = [self._placed(variant, cell, answer, received) for answer in answers]
            if not all(placed) or placed == drawn.get((variant.redraws, *variant.place)):
                continue  # a second draw that is the first one again shows nothing
            drawn[variant.intervention, *variant.place] = placed
            places.append(Place(variant.intervention, *variant.place, _size(placed[0] or ())))
            edits.append([each or () for each in placed])
        by_answer = tuple(tuple(each[number] for each in edits) for number in range(len(answers)))
        return Trial(cell, tuple(answers), tuple(places), by_answer)

    def _placed(self, variant: Variant, cell: Cell, answer: Answered, received: Received) -> Placed:
        """A variant's edits with positions; None if this prompt has nothing of the kind to change."""
        try:
            edits = [self._one(variant, edit, cell, answer, received) for edit in variant.edits]
        except StoppingError:
            raise
        except AttnscopeError:  # such as positions beyond the end of this prompt
            return None
        known = tuple(edit for edit in edits if edit is not None)
        _refuse_blind([edit for edit in known if isinstance(edit, Hide)], cell, variant)
        return known if len(known) == len(edits) else None

    def _one(
        self, variant: Variant, edit: AttentionEdit, cell: Cell, answer: Answered, received: Received
    ) -> AttentionEdit | None:
        placed: AttentionEdit | None
        if isinstance(edit, Hide):
            placed = self._hide(edit, answer)
        else:
            with ATTENTION_EDITS.blamed(edit.key, "placed"):
                placed = edit.placed(answer.prompt)
        if placed is not None and variant.draw is not None:
            placed = self._control(variant, placed, cell, answer, received)
        return self._borrowed(placed, cell, answer) if isinstance(placed, Borrowed) else placed

    def _borrowed(self, edit: Borrowed, cell: Cell, answer: Answered) -> Borrowed | None:
        """An edit with the texts that it borrows from: the same for it and its controls."""
        other = self.sources.cell(edit.condition, cell.prompt.number)
        same_answer = None if other is None else self.answers.after(other, answer.answer_ids)
        return self.sources.placed(edit, cell, answer, same_answer, self._rng(cell, "resampled"))

    def _rng(self, cell: Cell, what: str) -> Random:
        text = f"{self.study.seed}/{what}/{cell.condition}/{cell.prompt.name}"
        return Random(hashlib.sha256(text.encode()).digest())  # noqa: S311

    def _hide(self, edit: Hide, answer: Answered) -> Hide | None:
        keys, queries, prompt = edit.hide, edit.queries, answer.prompt
        if isinstance(keys, str):
            shares = self._shares(keys, prompt)
            keys = tuple(token.position for token in prompt.tokens if shares[token.position] > MOST)
        if isinstance(queries, str):
            queries = self._rows(queries, answer)
        most = len(answer.ids) if self._is_answer(edit.hide) else answer.start  # a choice keeps what it writes itself
        seen = [key for key in keys if queries and key <= max(queries) and key < most]
        if not seen:
            return None
        positions = edit.model_copy(update={"hide": tuple(sorted(seen)), "queries": tuple(sorted(queries))})
        return positions.placed(prompt)

    def _is_answer(self, keys: object) -> bool:
        """Whether keys are those of the answer."""
        rules = {**self.study.rules, **self.study.set_rules}
        return isinstance(keys, str) and rules.get(keys, keys) == f"{SEGMENT.prefix}{ANSWER}"

    def _shares(self, keys: str, prompt: Tokenized) -> NDArray[np.float64]:
        """Each token's share in a class or set of the study, or in what a rule claims."""
        whole = prompt.text, prompt.tokens, prompt.spans
        classes = [*self.study.classes, OTHER]
        if keys in classes:
            return np.asarray(membership(self.study.rules, *whole)[classes.index(keys)])
        return np.asarray(set_membership({keys: self.study.set_rules.get(keys, keys)}, *whole)[0])

    def _rows(self, queries: str, answer: Answered) -> tuple[int, ...]:
        """The positions of a query group; `last` is the prompt's last token, not the answer's."""
        if queries == LAST.name:
            return (answer.start - 1,)
        prompt = answer.prompt
        shown = QueryPrompt(prompt.text, prompt.tokens, prompt.spans, prompt.answered)
        groups = groups_of(self.study.measure.queries, shown)
        named = [row for group, rows in groups.items() if queries in (group.name, group.series) for row in rows]
        if named:
            return tuple(sorted(set(named)))
        return rows_of(queries, prompt.tokens, shown.segments, prompt.spans)

    def _control(
        self, variant: Variant, edit: AttentionEdit, cell: Cell, answer: Answered, received: Received
    ) -> AttentionEdit | None:
        """As much of something else. The same for all answers of a prompt and, for keys, for all models."""
        if variant.draw == MATCHED:
            return self._matched(variant, edit, answer, received)
        rng = self._rng(cell, f"{variant.intervention}/{variant.place}")
        with ATTENTION_EDITS.blamed(edit.key, "control"):
            return edit.control(answer.prompt, self.heads, rng)

    def _matched(
        self, variant: Variant, edit: AttentionEdit, answer: Answered, received: Received
    ) -> AttentionEdit | None:
        if isinstance(edit, Ablate | Borrowed) and variant.ranks is not None:
            heads = _matched_heads(edit.named(()), variant.ranks)
            return None if heads is None else edit.model_copy(update={edit.key: heads})
        if not isinstance(edit, Hide):
            return None
        mass = received(None if edit.layers == "all" else edit.layers, None if edit.heads == "all" else edit.heads)
        if max(edit.key_positions) >= len(mass):  # tokens of an answer that was not measured
            return None
        drawn: list[int] = []
        for keys, circles in edit.circles(answer.prompt):
            for key in sorted(keys, key=lambda key: (-mass[key], key)):
                free = ([other for other in circle if other not in drawn] for circle in circles)
                alike = next((circle for circle in free if circle), None)
                if alike is None:
                    return None
                drawn.append(min(alike, key=lambda other: (abs(mass[other] - mass[key]), other)))
        return edit.model_copy(update={"hide": tuple(sorted(drawn))}) if drawn else None


def _matched_heads(
    named: Mapping[int, Sequence[int]], ranks: Mapping[Head, float]
) -> dict[int, tuple[int, ...]] | None:
    """For each head the one with the nearest rank among all others, in any layer; None if there are too few."""
    chosen = [(layer, head) for layer, heads in named.items() for head in heads]
    free = [head for head in ranks if head not in chosen]
    drawn: list[Head] = []
    if len(free) < len(chosen):
        return None
    for head in sorted(chosen, key=lambda each: (-ranks[each], each)):
        nearest = min(free, key=lambda other: (abs(ranks[other] - ranks[head]), other))
        free.remove(nearest)
        drawn.append(nearest)
    return {layer: tuple(sorted(h for at, h in drawn if at == layer)) for layer in sorted({at for at, _ in drawn})}


def _size(edits: Sequence[AttentionEdit]) -> int:
    return sum(len(edit.key_positions) if isinstance(edit, Hide) else _heads(edit) for edit in edits)


def _heads(edit: AttentionEdit) -> int:
    return sum(map(len, edit.named(()).values()))


def _refuse_blind(hides: Sequence[Hide], cell: Cell, variant: Variant) -> None:
    """A query that sees no key has no attention: a mistake of the study, found before anything is run."""
    masks = [edit for edit in hides if edit.how == "renormalise"]
    for edit in masks:
        together = [each for each in masks if _meet(edit, each)]
        for query in edit.query_positions:
            hidden = {key for each in together if query in each.query_positions for key in each.key_positions}
            if query < len(hidden) and all(key in hidden for key in range(query + 1)):
                raise StoppingError(
                    f"'{variant.intervention}' hides all keys that the token at position {query} can see",
                    where=f"prompt {cell.prompt.name}, condition {cell.condition}",
                    allowed="queries that see at least one key",
                    todo="hide fewer tokens, or hide them from fewer queries: from: writing",
                )


def _meet(one: Hide, two: Hide) -> bool:
    """Whether two edits hide keys in the same head of some layer."""
    pairs = (one.layers, two.layers), (one.heads, two.heads)
    return all("all" in pair or set(pair[0]) & set(pair[1]) for pair in pairs)


class Answers:
    """Gives a cell's text with the answer, then with each other choice; each cell is worked out once.

    chat: the prompts went through a chat template.
    """

    def __init__(self, study: Study, tokenization: Tokenization, context: int | None, *, chat: bool) -> None:
        self.study, self.tokenization, self.context, self.chat = study, tokenization, context, chat
        self._known: dict[tuple[str, int], tuple[Answered, ...]] = {}

    def __call__(self, cell: Cell) -> tuple[Answered, ...]:
        key = cell.condition, cell.prompt.number
        if key not in self._known:
            self._known[key] = self._of(cell)
        return self._known[key]

    def after(self, cell: Cell, ids: Sequence[int]) -> Answered:
        """A cell's prompt, followed by these tokens as its answer."""
        end, before = _prompt_of(cell)
        text, more = self.tokenization.spelled(ids, cell.text.text[:end], [token.id for token in before])
        return _answered(cell, end, text, [*before, *more], len(before))

    def _of(self, cell: Cell) -> tuple[Answered, ...]:
        outcome, (end, before) = self.study.outcome, _prompt_of(cell)
        assert outcome is not None  # noqa: S101
        answers = []
        if self.study.prompts.answer is not None:
            if len(before) == len(cell.tokens):
                raise _no_answer(cell, "the answer is empty")
            answers.append(_answered(cell, end, cell.text.text, cell.tokens, len(before)))
            right = cell.text.text[end:]
        else:
            right = _field({**cell.prompt.beside, **cell.prompt.texts}, str(outcome.answer), cell)
            answers.append(self._followed(cell, right))
        choices = outcome.choices
        listed = _listed(cell, choices) if isinstance(choices, str) else choices or []
        if choices is not None and cell.tokens[len(before) :] and cell.tokens[len(before)].start < end:
            raise _no_answer(
                cell, "the answer's first token begins in the prompt, so choices would follow another prompt"
            )
        answers += [self._followed(cell, each) for each in listed if each != right]
        if choices is not None and len(answers) < 2:
            raise _no_answer(cell, "there is only one choice")
        for answer in answers:
            if self.context is not None and len(answer.ids) > self.context:
                raise AttnscopeError(
                    f"the prompt and its answer have {len(answer.ids)} tokens, more than the model's context",
                    where=f"prompt {cell.prompt.name}, condition {cell.condition}",
                    allowed=f"at most {self.context} tokens",
                    todo="shorten it",
                )
        return tuple(answers)

    def _followed(self, cell: Cell, answer: str) -> Answered:
        """The cell's prompt and an answer as it is written; in tokens of the whole text if the prompt keeps its own."""
        end, before = _prompt_of(cell)
        text = cell.text.text[:end] + answer
        together = self.tokenization.tokenize(text, chat=self.chat)
        if len(together) > len(before) and [each.id for each in together[: len(before)]] == [
            each.id for each in before
        ]:
            return _answered(cell, end, text, together, len(before))
        ids = self.tokenization.tokenizer(answer, add_special_tokens=False)["input_ids"] if answer else []
        if not ids:
            raise _no_answer(cell, "an answer is empty")
        followed = self.after(cell, ids)
        if followed.prompt.text != text:
            raise _no_answer(cell, f"the model has no tokens for {answer[:40]!r} after this prompt")
        return followed


def _prompt_of(cell: Cell) -> tuple[int, Sequence[Token]]:
    """The number of characters of a cell's prompt, without an answer, and its tokens."""
    start = next((place for place, segment in enumerate(cell.segments) if segment == ANSWER), len(cell.tokens))
    end = next((span.start for span in cell.text.spans if span.segment == ANSWER), len(cell.text.text))
    return end, cell.tokens[:start]


def _answered(cell: Cell, end: int, text: str, tokens: Sequence[Token], start: int) -> Answered:
    """A text of a cell's prompt, `end` characters and `start` tokens, and an answer."""
    spans = [*(span for span in cell.text.spans if span.start < end), Span(ANSWER, end, len(text))]
    return Answered(Tokenized(text, tokens, spans, answered=len(tokens) - start), start)


def _field(texts: Mapping[str, str], name: str, cell: Cell) -> str:
    if not texts.get(name):
        raise _no_answer(
            cell, f"field '{name}' has no text", near(name, [each for each, text in texts.items() if text])
        )
    return texts[name]


def _listed(cell: Cell, name: str) -> Sequence[str]:
    """A prompt's choices: the items of a list."""
    value = cell.prompt.fields.get(name)
    items = [item.text for item in value.items] if isinstance(value, Items) else cell.prompt.lists.get(name)
    if not items:
        raise _no_answer(cell, f"field '{name}' is no list of choices", near(name, cell.prompt.lists))
    return items


def _no_answer(
    cell: Cell, what: str, allowed: str = "an answer, and different choices, of at least one token"
) -> AttnscopeError:
    where = f"prompt {cell.prompt.name}, condition {cell.condition}"
    return AttnscopeError(what, where=where, allowed=allowed, todo="add text, or remove the prompt")
