"""Cells: one (model, condition, prompt) each, the unit of work. Made from a study and a model's tokenizer alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from attnscope.edits.sources.fitting import exactly
from attnscope.edits.sources.source import Ground, Source
from attnscope.errors import AttnscopeError
from attnscope.models.tokenization import Tokenization
from attnscope.runs.manifest import Dropped
from attnscope.study.prompts import Prompt, PromptList
from attnscope.study.schema import ConditionSpec, ModelSpec, Study
from attnscope.text.alignment import Alignment, align
from attnscope.text.layout import lay_out
from attnscope.text.segments import ANSWER, INSERTED, Piece, Text, segments_of
from attnscope.text.tokens import Token

NAMED = ("last", "all")


@dataclass(frozen=True)
class Cell:
    """A prompt as a model gets it under a condition."""

    model: str
    condition: str
    prompt: Prompt
    text: Text
    tokens: tuple[Token, ...]
    segments: tuple[str, ...]
    alignment: Alignment | None
    """To the base prompt; None if the model's template makes another text of it."""
    rows: Mapping[str, tuple[int, ...]]
    """The positions of query groups other than `last` and `all`."""

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def inserted(self) -> int:
        """How many tokens the condition inserts; one that mixes with others counts if most of it is inserted."""
        return sum(segment == INSERTED for segment in self.segments)


class CellMaker:
    """Makes the cells of one model."""

    def __init__(
        self, study: Study, prompts: PromptList, part: ModelSpec, tokenization: Tokenization, context: int | None
    ):
        self.study, self.prompts, self.part = study, prompts, part
        self.tokenization, self.context = tokenization, context
        self.layout = prompts.layouts.chosen(has_template=tokenization.has_template)
        self._inserted: dict[tuple[str, int], int] = {}

    def make(self) -> tuple[list[Cell], list[Dropped]]:
        """In the study's order: conditions, then prompts."""
        cells: list[Cell] = []
        dropped: list[Dropped] = []
        for condition in self.study.conditions:
            for prompt in self.prompts.prompts:
                try:
                    cells.append(self.cell(condition, prompt))
                except AttnscopeError as error:
                    where = {"model": self.part.label, "condition": condition.name, "prompt": prompt.number}
                    dropped.append(Dropped(**where, reason=str(error)))
        return cells, dropped

    def cell(self, condition: ConditionSpec, prompt: Prompt) -> Cell:
        self._refuse_if_empty(prompt)
        base = self._text(prompt, None, "")
        base_tokens = self._tokens(base)
        text, tokens = base, base_tokens
        if condition.insert is not None:
            text = self._text(prompt, condition, self._insertion(condition, condition.insert, prompt))
            tokens = self._tokens(text)
        cell = self._cell(condition.name, prompt, text, tokens, align(text, tokens, base, base_tokens))
        self._inserted[condition.name, prompt.number] = cell.inserted
        if self.context is not None and len(tokens) > self.context:
            raise AttnscopeError(
                f"the prompt has {len(tokens)} tokens, more than {self.part.label} was made for",
                where=f"prompt {prompt.name}, condition {condition.name}",
                allowed=f"at most {self.context} tokens",
                todo="shorten it",
            )
        return cell

    def answered(self, cell: Cell, ids: Sequence[int]) -> Cell:
        """The cell with an answer of these tokens after the prompt."""
        spelled, more = self.tokenization.spelled(ids, cell.text.text, cell.ids)
        text = cell.text.followed_by(Piece(ANSWER, spelled[len(cell.text.text) :]))
        alignment = cell.alignment
        if alignment is not None:  # answers differ, so their tokens have no counterpart
            alignment = Alignment(
                alignment.base + (None,) * len(more), alignment.inserted, alignment.remerged, alignment.lost
            )
        return self._cell(cell.condition, cell.prompt, text, [*cell.tokens, *more], alignment)

    def _cell(
        self, condition: str, prompt: Prompt, text: Text, tokens: Sequence[Token], alignment: Alignment | None
    ) -> Cell:
        segments = segments_of(tokens, text.spans)
        rows = {}
        for group in self.study.measure.queries:
            if group in NAMED or (group == ANSWER and self._will_be_answered(segments)):
                continue
            rows[group] = tuple(place for place, segment in enumerate(segments) if segment == group)
            if not rows[group] and group == ANSWER:
                raise AttnscopeError(
                    "the answer is empty",
                    where=f"prompt {prompt.name}, condition {condition}",
                    allowed="an answer of at least one token",
                    todo="leave the group 'answer' out, or the prompt",
                )
            if not rows[group]:
                raise AttnscopeError(
                    f"segment '{group}' has no token of its own",
                    where=f"prompt {prompt.name}, condition {condition}",
                    allowed="query groups with at least one token",
                    todo="look at it with 'attnscope tokens'",
                )
        return Cell(self.part.label, condition, prompt, text, tuple(tokens), tuple(segments), alignment, rows)

    def _will_be_answered(self, segments: Sequence[str]) -> bool:
        answer = self.study.prompts.answer
        return answer is not None and answer.generate is not None and ANSWER not in segments

    def _refuse_if_empty(self, prompt: Prompt) -> None:
        for field, text in prompt.fields.items():
            if not text:
                raise AttnscopeError(
                    f"segment '{field}' is empty",
                    where=f"prompt {prompt.name}",
                    allowed="some text in every segment",
                    todo="fill it, or take the prompt out",
                )

    def _text(self, prompt: Prompt, condition: ConditionSpec | None, inserted: str) -> Text:
        lines = []
        for role, pieces in self.layout.pieces(prompt.fields):
            placed: list[Piece] = []
            for piece in pieces:
                if condition is not None and piece.segment == condition.before:
                    placed.append(Piece(INSERTED, inserted + condition.separator))
                placed.append(piece)
                if condition is not None and piece.segment == condition.after:
                    placed.append(Piece(INSERTED, condition.separator + inserted))
            lines.append((role, placed))
        text = lay_out(lines, self._apply)
        answer = self.study.prompts.answer
        if answer is not None and answer.field is not None:
            text = text.followed_by(Piece(ANSWER, prompt.fields[answer.field]))
        return text

    def _apply(self, messages: Sequence[tuple[str, str]]) -> str:
        return self.tokenization.render([{"role": role, "content": content} for role, content in messages])

    def _tokens(self, text: Text) -> list[Token]:
        return self.tokenization.tokenize(text.text, chat=self.layout.chat)

    def _insertion(self, condition: ConditionSpec, source: Source, prompt: Prompt) -> str:
        ground = Ground(prompt.fields, _Words(self.tokenization))
        where = f"prompt {prompt.name}, condition {condition.name}"

        def draft(units: int, attempt: int) -> str:
            return source.draft(units, self._chance(condition, prompt, attempt), ground)

        def count(inserted: str) -> int:
            text = self._text(prompt, condition, inserted)
            return segments_of(self._tokens(text), text.spans).count(INSERTED)

        if condition.times is not None:
            return draft(condition.times, 0)
        wanted = condition.tokens
        if condition.match is not None:
            wanted = self._inserted.get((condition.match, prompt.number))
            if wanted is None:
                raise AttnscopeError(
                    f"condition '{condition.match}' was not made for this prompt",
                    where=where,
                    allowed="prompts that both conditions can be made for",
                    todo="see why it was dropped",
                )
        if wanted is not None and self.context is not None and wanted > self.context:
            raise AttnscopeError(
                f"{wanted} tokens are to be inserted, more than {self.part.label} was made for",
                where=where,
                allowed=f"at most {self.context} tokens in all",
                todo="insert fewer",
            )
        if wanted is not None:
            return exactly(wanted, draft, count, where)
        natural = source.natural(ground)
        if not natural:
            raise AttnscopeError(
                "there is nothing to insert", where=where, allowed="a source with some text", todo="check its segment"
            )
        return draft(natural, 0)

    def _chance(self, condition: ConditionSpec, prompt: Prompt, attempt: int) -> Random:
        """Not the model's: all models get the same random text as far as their tokenizers allow."""
        seed = f"{self.study.seed}/{condition.name}/{prompt.number}/{attempt}"
        return Random(hashlib.sha256(seed.encode()).digest())  # noqa: S311


class _Words(Sequence[str]):
    """A vocabulary's words, looked up when first asked for."""

    def __init__(self, tokenization: Tokenization) -> None:
        self._wording = tokenization

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return self._wording.words[place]

    def __len__(self) -> int:
        return len(self._wording.words)


def cell_key(facts: Mapping[str, object], cell: Cell) -> str:
    """The hash of everything a cell's numbers depend on; facts: of the model and of what is measured."""
    content = {**facts, "ids": cell.ids, "rows": {name: list(rows) for name, rows in cell.rows.items()}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
