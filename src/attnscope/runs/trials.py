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
from attnscope.text.rules import Tokenized
from attnscope.text.segments import ANSWER, Span, segments_of
from attnscope.text.tokens import Token
from attnscope.text.values import Items

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
    answers: Callable[[Cell], Sequence[Answered]]
    """A cell's text with the answer, then with each other choice."""

    def trial(self, cell: Cell, received: Received) -> Trial:
        """A cell's trial."""
        places, edits, answers = [], [], self.answers(cell)
        for variant in self.variants:
            placed = [self._placed(variant, cell, number, answer, received) for number, answer in enumerate(answers)]
            if all(placed):
                places.append(Place(variant.intervention, *variant.place, _size(placed[0] or ())))
                edits.append([each or () for each in placed])
        by_answer = tuple(tuple(each[number] for each in edits) for number in range(len(answers)))
        return Trial(cell, tuple(answers), tuple(places), by_answer)

    def _placed(
        self, variant: Variant, cell: Cell, number: int, answer: Answered, received: Received
    ) -> tuple[AttentionEdit, ...] | None:
        """A variant's edits with positions; None if this prompt has nothing of the kind to change."""
        edits: list[AttentionEdit] = []
        for edit in variant.edits:
            with ATTENTION_EDITS.blamed(edit.key, "placed"):
                placed = self._hide(edit, answer) if isinstance(edit, Hide) else edit.placed(answer.prompt)
            drawn = (
                placed
                if placed is None or variant.draw is None
                else self._control(variant, placed, cell, answer, received)
            )
            if isinstance(drawn, Borrowed):
                drawn = self._borrowed(drawn, cell, number, answer)
            if drawn is None:
                return None
            edits.append(drawn)
        for hide in edits:
            if isinstance(hide, Hide):
                _refuse_blind(hide, cell, variant)
        return tuple(edits)

    def _borrowed(self, edit: Borrowed, cell: Cell, number: int, answer: Answered) -> Borrowed | None:
        """An edit with the texts that it borrows from: the same for it and its controls."""
        other = self.sources.cell(edit.condition, cell.prompt.number)
        same_answer = None if other is None else self.answers(other)[number]
        rng = self._rng(cell, "resampled")
        return self.sources.placed(edit, cell, answer, same_answer, rng)

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
        seen = [key for key in keys if queries and key <= max(queries)]
        if not seen:
            return None
        positions = edit.model_copy(update={"hide": tuple(sorted(seen)), "queries": tuple(sorted(queries))})
        return positions.placed(prompt)

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
        segments = segments_of(prompt.tokens, prompt.spans, prompt.answered)
        return rows_of(queries, prompt.tokens, segments, prompt.spans)

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


def _refuse_blind(edit: Hide, cell: Cell, variant: Variant) -> None:
    """A query that sees no key has no attention: a mistake of the study, found before anything is run."""
    hidden = set(edit.key_positions)
    for query in edit.query_positions if edit.how == "renormalise" else ():
        if query < len(hidden) and all(key in hidden for key in range(query + 1)):
            raise StoppingError(
                f"'{variant.intervention}' hides all keys that the token at position {query} can see",
                where=f"prompt {cell.prompt.name}, condition {cell.condition}",
                allowed="queries that see at least one key",
                todo="hide fewer tokens, or hide them from fewer queries: from: writing",
            )


class Answers:
    """Gives a cell's text with the answer, then with each other choice; each cell is worked out once."""

    def __init__(self, study: Study, tokenization: Tokenization, context: int | None) -> None:
        self.study, self.tokenization, self.context = study, tokenization, context
        self._known: dict[tuple[str, int], tuple[Answered, ...]] = {}

    def __call__(self, cell: Cell) -> tuple[Answered, ...]:
        key = cell.condition, cell.prompt.number
        if key not in self._known:
            self._known[key] = _answers_of(self.study, self.tokenization, self.context, cell)
        return self._known[key]


def _answers_of(study: Study, tokenization: Tokenization, context: int | None, cell: Cell) -> tuple[Answered, ...]:
    assert study.outcome is not None  # noqa: S101
    texts = {**cell.prompt.beside, **cell.prompt.texts}
    start = next((place for place, segment in enumerate(cell.segments) if segment == ANSWER), len(cell.tokens))
    before = cell.tokens[:start]
    end = next((span.start for span in cell.text.spans if span.segment == ANSWER), len(cell.text.text))
    answers = []
    if study.prompts.answer is not None:
        if start == len(cell.tokens):
            raise _no_answer(cell, "the answer is empty")
        prompt = Tokenized(cell.text.text, cell.tokens, cell.text.spans, answered=len(cell.tokens) - start)
        answers.append(Answered(prompt, start))
        right = cell.text.text[end:]
    else:
        right = _field(texts, str(study.outcome.answer), cell)
        answers.append(_followed(cell, end, before, right, tokenization))
    choices = study.outcome.choices
    listed = _listed(cell, choices) if isinstance(choices, str) else choices or []
    answers += [_followed(cell, end, before, each, tokenization) for each in listed if each != right]
    if choices is not None and len(answers) < 2:
        raise _no_answer(cell, "there is only one choice")
    for answer in answers:
        if context is not None and len(answer.ids) > context:
            raise AttnscopeError(
                f"the prompt and its answer have {len(answer.ids)} tokens, more than the model's context",
                where=f"prompt {cell.prompt.name}, condition {cell.condition}",
                allowed=f"at most {context} tokens",
                todo="shorten it",
            )
    return tuple(answers)


def _followed(cell: Cell, end: int, before: Sequence[Token], answer: str, tokenization: Tokenization) -> Answered:
    """The cell's prompt, up to character `end`, with these tokens, and an answer as it is written."""
    ids = tokenization.tokenizer(answer, add_special_tokens=False)["input_ids"] if answer else []
    if not ids:
        raise _no_answer(cell, "an answer is empty")
    text, more = tokenization.spelled(ids, cell.text.text[:end], [token.id for token in before])
    spans = [span for span in cell.text.spans if span.start < end]
    spans = [*spans, Span(ANSWER, end, len(text))]
    return Answered(Tokenized(text, [*before, *more], spans, answered=len(more)), len(before))


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
