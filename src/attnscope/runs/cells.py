"""Cells: one per (model, condition, prompt), the unit of work. Made from a study and a model's tokenizer alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from attnscope.edits.prompt import PROMPT_EDITS, EditContext, Lines
from attnscope.errors import AttnscopeError, StoppingError
from attnscope.models.tokenization import Tokenization
from attnscope.runs.disjoint import refuse_overlapping
from attnscope.runs.manifest import Dropped
from attnscope.study.prompts import Prompt, PromptList
from attnscope.study.schema import ConditionSpec, ModelSpec, Study
from attnscope.text.alignment import Alignment, align
from attnscope.text.classes import refuse_failing, removed_tokens
from attnscope.text.groups import WITHOUT_TOKENS, Rows
from attnscope.text.groups.writing import WRITING
from attnscope.text.layout import lay_out
from attnscope.text.query_rules import Group, groups_of, titles_of
from attnscope.text.query_rules import Prompt as QueryPrompt
from attnscope.text.segments import ANSWER, INSERTED, OF_ANSWER, Piece, Text, segments_of
from attnscope.text.tokens import Token
from attnscope.text.values import Chat, is_whole


@dataclass(frozen=True)
class Cell:
    """A prompt as a model gets it under a condition."""

    model: str
    condition: str
    prompt: Prompt
    text: Text
    tokens: tuple[Token, ...]
    segments: tuple[str, ...]
    alignment: Alignment
    """Alignment to the base prompt."""
    groups: tuple[Group, ...]
    """Its query groups, in the study's order."""
    rows: Mapping[str, Rows]
    """The positions of each query group, except groups that only need the number of tokens."""

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def size(self) -> int:
        """How many tokens go through the model."""
        return len(self.tokens)

    @property
    def queries(self) -> list[str]:
        """The names of its query groups."""
        return [group.name for group in self.groups]

    @property
    def inserted(self) -> int:
        """How many tokens the condition inserts; a partly inserted token counts if most of its characters are."""
        return sum(segment == INSERTED for segment in self.segments)


class CellMaker:
    """Makes the cells of one model."""

    def __init__(
        self, study: Study, prompts: PromptList, spec: ModelSpec, tokenization: Tokenization, context: int | None
    ):
        self.study, self.prompts, self.spec = study, prompts, spec
        self.tokenization, self.context = tokenization, context
        self.layout = prompts.layouts.chosen(has_template=tokenization.has_template)
        self._inserted: dict[tuple[str, int], int] = {}
        self._errors: dict[tuple[str, int], AttnscopeError] = {}

    def make(self) -> tuple[list[Cell], list[Dropped]]:
        """All cells, in the study's order: conditions, then prompts; and those that can't be made."""
        cells: list[Cell] = []
        dropped: list[Dropped] = []
        for condition in self.study.conditions:
            for prompt in self.prompts.prompts:
                try:
                    cells.append(self.checked(self.cell(condition, prompt)))
                except StoppingError:
                    raise
                except AttnscopeError as error:
                    self._errors[condition.name, prompt.number] = error
                    where = {"model": self.spec.label, "condition": condition.name, "prompt": prompt.number}
                    dropped.append(Dropped(**where, reason=str(error)))
        return cells, dropped

    def error(self, dropped: Dropped) -> AttnscopeError | None:
        """Why a cell could not be made; None if it was made, and could not be measured."""
        return self._errors.get((dropped.condition, dropped.prompt))

    def checked(self, cell: Cell) -> Cell:
        """The cell, if the rules of all classes can be applied to it, as they are when tables are written."""
        rules = [*self.study.rules.values(), *self.study.set_rules.values(), *self.study.removed_rules]
        prompt = cell.text.text, cell.tokens, cell.text.spans
        refuse_failing(rules, *prompt)
        refuse_overlapping(self.study, cell)
        if not self._will_be_answered and removed_tokens(self.study.removed_rules, *prompt).all():
            raise AttnscopeError(
                "'without' leaves out every token of the prompt",
                where=f"prompt {cell.prompt.name}, condition {cell.condition}",
                allowed="prompts with tokens that are left",
                todo="leave out fewer tokens, or remove the prompt",
            )
        return cell

    def cell(self, condition: ConditionSpec, prompt: Prompt) -> Cell:
        self._refuse_if_empty(prompt)
        lines: Lines = self.layout.pieces(prompt.fields)
        base = self._text(prompt, lines)
        base_tokens = self._tokens(base)
        text, tokens = base, base_tokens
        if not condition.is_base:
            text = self._text(prompt, self._edited(condition, prompt, lines), condition)
            tokens = self._tokens(text)
        cell = self._cell(condition.name, prompt, text, tokens, align(text, tokens, base, base_tokens))
        self._inserted[condition.name, prompt.number] = cell.inserted
        if self.context is not None and len(tokens) > self.context:
            raise AttnscopeError(
                f"the prompt has {len(tokens)} tokens, more than the context of {self.spec.label}",
                where=f"prompt {prompt.name}, condition {condition.name}",
                allowed=f"at most {self.context} tokens",
                todo="shorten it",
            )
        return cell

    def base_text(self, prompt: Prompt) -> Text:
        """The prompt without a condition's edits."""
        return self._text(prompt, self.layout.pieces(prompt.fields))

    def answered(self, cell: Cell, ids: Sequence[int]) -> Cell:
        """The cell with these token ids as the answer after the prompt."""
        spelled, more = self.tokenization.spelled(ids, cell.text.text, cell.ids)
        text = cell.text.followed_by(Piece(ANSWER, spelled[len(cell.text.text) :]))
        none = (None,) * len(more)  # answers differ, so their tokens have no counterpart
        alignment = replace(cell.alignment, base=cell.alignment.base + none)
        return self._cell(cell.condition, cell.prompt, text, [*cell.tokens, *more], alignment, answer=len(more))

    def _cell(
        self,
        condition: str,
        prompt: Prompt,
        text: Text,
        tokens: Sequence[Token],
        alignment: Alignment,
        answer: int | None = None,
    ) -> Cell:
        """answer: how many of the tokens the model wrote; None before it has."""
        shown = QueryPrompt(text.text, tokens, text.spans, answer or 0)
        groups = groups_of(self.study.measure.queries, shown)
        unanswered = self._will_be_answered and answer is None
        for title in () if unanswered else titles_of(self.study.measure.queries):
            self._refuse_without_queries(title, groups, f"prompt {prompt.name}, condition {condition}")
        rows = {group.name: places for group, places in groups.items() if group.name not in WITHOUT_TOKENS}
        where = self.spec.label, condition, prompt
        return Cell(*where, text, tuple(tokens), tuple(shown.segments), alignment, tuple(groups), rows)

    def _refuse_without_queries(self, title: str, groups: Collection[Group], where: str) -> None:
        """A prompt without a group of the study can't be compared with others; of a series it needs any group."""
        if any(title in (group.name, group.series) for group in groups):
            return
        raise AttnscopeError(
            "the answer is empty" if title in (ANSWER, WRITING.name) else f"query group '{title}' has no tokens",
            where=where,
            allowed="query groups with at least one token",
            todo="check it with 'attnscope tokens', or remove the group or the prompt",
        )

    @property
    def _will_be_answered(self) -> bool:
        """Whether the model writes an answer later; an empty one is an answer too."""
        answer = self.study.prompts.answer
        return answer is not None and answer.generate is not None

    def _refuse_if_empty(self, prompt: Prompt) -> None:
        for field, value in prompt.fields.items():
            if isinstance(value, Chat) and value.problem is not None:
                raise AttnscopeError(
                    f"{value.problem} of '{field}'",
                    where=f"prompt {prompt.name}",
                    allowed="messages with some text, of system, user and assistant",
                    todo="remove the prompt, or change the message",
                )
            if not is_whole(value):
                raise AttnscopeError(
                    f"field '{field}' is empty",
                    where=f"prompt {prompt.name}",
                    allowed="some text in every field, item and message",
                    todo="add text, or remove the prompt",
                )

    def _edited(self, condition: ConditionSpec, prompt: Prompt, lines: Lines) -> Lines:
        """The prompt after the condition's edits, applied in order."""
        for number, edit in enumerate(condition.edits):
            with PROMPT_EDITS.blamed(edit.key, "apply"):
                lines = _checked(edit.apply(lines, self._context(condition, prompt, number)))
        return lines

    def _context(self, condition: ConditionSpec, prompt: Prompt, number: int) -> EditContext:
        def count(lines: Lines, segment: str) -> int:
            text = self._text(prompt, lines, condition)
            return segments_of(self._tokens(text), text.spans).count(segment)

        return EditContext(
            where=f"prompt {prompt.name}, condition {condition.name}",
            model=self.spec.label,
            fields={**prompt.beside, **prompt.texts},
            vocabulary=_Words(self.tokenization),
            rng=lambda attempt: self._rng(condition, prompt, attempt, number),
            count=count,
            inserted={name: count for (name, place), count in self._inserted.items() if place == prompt.number},
            limit=self.context,
            others=lambda: self._others(prompt),
        )

    def _others(self, prompt: Prompt) -> list[list[Piece]]:
        """The pieces of the other prompts: those of other clusters, or if there are none, all others."""
        others = [each for each in self.prompts.every if each.number != prompt.number]
        apart = [each for each in others if each.cluster != prompt.cluster] or others
        return [[piece for _, pieces in self.layout.pieces(each.fields) for piece in pieces] for each in apart]

    def _text(self, prompt: Prompt, lines: Lines, condition: ConditionSpec | None = None) -> Text:
        """condition: whose edits made the lines; None for the base prompt."""
        text = lay_out(lines, partial(self._apply, prompt, condition))
        answer = self.study.prompts.answer
        if answer is not None and answer.field is not None:
            text = text.followed_by(Piece(ANSWER, prompt.answer or "", origin=OF_ANSWER))
        return text

    def _apply(self, prompt: Prompt, condition: ConditionSpec | None, messages: Sequence[tuple[str, str]]) -> str:
        where, todo = f"prompt {prompt.name}", "lay the prompts out with plain instead of chat"
        if condition is not None:
            where, todo = f"{where}, condition {condition.name}", f"{todo}, or change the edit"
        chat = [{"role": role, "content": content} for role, content in messages]
        return self.tokenization.render(chat, where=where, todo=todo)

    def _tokens(self, text: Text) -> list[Token]:
        return self.tokenization.tokenize(text.text, chat=self.layout.chat)

    def _rng(self, condition: ConditionSpec, prompt: Prompt, attempt: int, edit: int) -> Random:
        """Independent of the model: all models get the same random text, as far as their tokenizers allow."""
        seed = f"{self.study.seed}/{condition.name}/{prompt.number}/{attempt}"
        seed = f"{seed}/{edit}" if edit else seed
        return Random(hashlib.sha256(seed.encode()).digest())  # noqa: S311


def _checked(lines: Lines) -> Lines:
    """What an edit returns, if it is a prompt."""
    for role, pieces in lines:
        if not (role is None or isinstance(role, str)) or not all(isinstance(piece, Piece) for piece in pieces):
            raise TypeError("it returns something else than roles, each with its pieces")
    return lines


class _Words(Sequence[str]):
    """A vocabulary's words, looked up on first use."""

    def __init__(self, tokenization: Tokenization) -> None:
        self._tokenization = tokenization

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return self._tokenization.words[place]

    def __len__(self) -> int:
        return len(self._tokenization.words)


def cell_key(facts: Mapping[str, object], cell: Cell) -> str:
    """The hash of everything a cell's numbers depend on. facts: about the model and what is measured."""
    content = {**facts, "ids": cell.ids, "rows": {name: list(rows) for name, rows in cell.rows.items()}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
