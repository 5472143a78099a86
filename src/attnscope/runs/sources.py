"""Where heads borrow from: the texts of a study whose head outputs replace those of another text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from attnscope.edits.attention import AttentionEdit
from attnscope.edits.attention.head_outputs import HeadOutputs, mean_output, resampled
from attnscope.edits.attention.patch import Patch
from attnscope.lens import Lens
from attnscope.lens.intervening import Answered
from attnscope.runs.cells import Cell
from attnscope.study.borrowed import MEAN, PATCH, Borrowed
from attnscope.text.segments import ANSWER
from attnscope.text.tokens import Token

TOGETHER = 2048  # tokens of texts that share a forward

Prompt = tuple[str, Sequence[Token]]


@dataclass(frozen=True)
class Source:
    """Some texts, and the heads by layer that are borrowed from them, of all trials together."""

    prompts: tuple[Prompt, ...]
    heads: Mapping[int, Sequence[int]]


def name_of(prompts: Iterable[Prompt]) -> str:
    """The name of texts: the hash of their tokens."""
    ids = [[token.id for token in tokens] for _, tokens in prompts]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


class Sources:
    """The texts that the trials of one model borrow from, found by cell."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = {(cell.condition, cell.prompt.number): cell for cell in cells}
        self._prompts: dict[str, tuple[Prompt, ...]] = {}

    def placed(
        self, edit: Borrowed, cell: Cell, answer: Answered, other: Answered | None, rng: Random
    ) -> Borrowed | None:
        """The edit with its source and alignment; None if this prompt has nothing to borrow from.

        other: for a patch, the same prompt under the condition that it names, with the same answer.
        """
        if edit.how == MEAN:
            every = [each for each in self._cells.values() if each.condition == cell.condition]
            return self._from(edit, [(each.text.text, each.tokens) for each in every], None)
        if edit.how == PATCH:
            if other is None or edit.condition == cell.condition:
                return None
            matches = _aligned(cell, answer, self._cells[str(edit.condition), cell.prompt.number], other)
            return self._from(edit, [(other.prompt.text, other.prompt.tokens)], matches)
        chosen = self._another(cell, rng)
        if chosen is None:
            return None
        prompt = next((place for place, name in enumerate(chosen.segments) if name == ANSWER), len(chosen.tokens))
        align = resampled(len(answer.ids), prompt, rng)
        return self._from(edit, [(chosen.text.text, chosen.tokens)], align)

    def cell(self, condition: str | None, prompt: int) -> Cell | None:
        """The cell of a prompt under a condition, if there is one."""
        return None if condition is None else self._cells.get((condition, prompt))

    def needed(self, edits: Iterable[AttentionEdit]) -> dict[str, Source]:
        """The sources of all these edits, by name."""
        heads: dict[str, dict[int, set[int]]] = {}
        for edit in edits:
            if isinstance(edit, Borrowed) and edit.source is not None:
                for layer, some in edit.borrowed.items():
                    heads.setdefault(edit.source, {}).setdefault(layer, set()).update(some)
        listed = {name: {layer: sorted(some) for layer, some in sorted(by.items())} for name, by in heads.items()}
        return {name: Source(self._prompts[name], by) for name, by in listed.items()}

    def _from(self, edit: Borrowed, prompts: Sequence[Prompt], align: Sequence[int | None] | None) -> Borrowed | None:
        if align is not None and not any(place is not None for place in align):
            return None
        name = name_of(prompts)
        self._prompts.setdefault(name, tuple(prompts))
        return edit.model_copy(update={"source": name, "align": None if align is None else tuple(align)})

    def _another(self, cell: Cell, rng: Random) -> Cell | None:
        """A random other prompt under the same condition, of another cluster if there is one."""
        others = [
            each
            for each in self._cells.values()
            if each.condition == cell.condition and each.prompt.number != cell.prompt.number and len(each.tokens) > 1
        ]
        apart = [each for each in others if each.prompt.cluster != cell.prompt.cluster] or others
        return rng.choice(sorted(apart, key=lambda each: each.prompt.number)) if apart else None


def _aligned(cell: Cell, answer: Answered, other_cell: Cell, other: Answered) -> list[int | None]:
    """For each token of a text the one of the same prompt under another condition, through the base prompt.

    The tokens of the answer correspond to each other.
    """
    places = {base: place for place, base in enumerate(other_cell.alignment.base[: other.start]) if base is not None}
    prompt = [None if base is None else places.get(base) for base in cell.alignment.base[: answer.start]]
    return [*prompt, *range(other.start, min(len(other.ids), other.start + len(answer.answer_ids)))]


class Borrowing:
    """Computes what heads give in sources, each source once, and turns borrowed edits into patches."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self._means: dict[str, HeadOutputs] = {}

    def patched(self, lens: Lens, variants: Sequence[Sequence[AttentionEdit]]) -> list[list[AttentionEdit]]:
        """The edits of each variant of a text, all of which a model can make."""
        outputs: dict[str, HeadOutputs] = {}
        return [[self._patch(lens, edit, outputs) for edit in edits] for edits in variants]

    def _patch(self, lens: Lens, edit: AttentionEdit, outputs: dict[str, HeadOutputs]) -> AttentionEdit:
        if not isinstance(edit, Borrowed):
            return edit
        name = str(edit.source)
        known = self._means if edit.how == MEAN else outputs
        if name not in known:
            source = self.sources[name]
            texts = _outputs(lens, source)
            known[name] = mean_output(texts) if edit.how == MEAN else next(texts)
        values = {layer: {head: known[name][layer][head] for head in heads} for layer, heads in edit.borrowed.items()}
        return Patch(patch=edit.borrowed, values=values, align=edit.align)


def _outputs(lens: Lens, source: Source) -> Iterator[HeadOutputs]:
    """What the heads give in each text, several texts in one forward."""
    waiting: list[Prompt] = []
    for prompt in source.prompts:
        longest = max(len(tokens) for _, tokens in (*waiting, prompt))
        if waiting and longest * (len(waiting) + 1) > TOGETHER:
            yield from lens.head_outputs_prepared(waiting, source.heads)
            waiting = []
        waiting.append(prompt)
    yield from lens.head_outputs_prepared(waiting, source.heads)
