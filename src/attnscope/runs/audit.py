"""The audit: how a tokenizer splits a study's prompts. No weights are loaded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from attnscope.models.load import Description
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.compatibility import chosen_layers, fitting_models
from attnscope.runs.manifest import Dropped
from attnscope.runs.request import RunRequest
from attnscope.study.schema import ModelSpec
from attnscope.text.changes import Change, changes, moved_characters
from attnscope.text.classes import OTHER, membership
from attnscope.text.segments import INSERTED


@dataclass(frozen=True)
class Audit:
    """How one model's tokenizer splits the study's prompts."""

    spec: ModelSpec
    description: Description
    cells: list[Cell]
    dropped: list[Dropped]
    maker: CellMaker

    def changes(self, cell: Cell) -> list[Change]:
        """What its condition's edits change in a prompt."""
        return changes(cell.text, self.maker.base_text(cell.prompt))

    def moved(self, cell: Cell) -> int:
        """How many tokens of a prompt stand elsewhere than in the base prompt."""
        flags = moved_characters(cell.text, self.maker.base_text(cell.prompt))
        return sum(bool(flags[token.start : token.end].all()) for token in cell.tokens if token.end > token.start)

    def of(self, condition: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.condition == condition]


def audits(request: RunRequest) -> list[Audit]:
    results = []
    for spec, description in fitting_models(request):
        context = description.facts.context
        maker = CellMaker(request.study, request.prompts, spec, description.tokenization, context)
        cells, dropped = maker.make()
        results.append(Audit(spec, description, cells, dropped, maker))
    return results


def heads_measured(request: RunRequest) -> dict[str, int]:
    """By model: how many heads the study measures, of all its layers together."""
    measure, counts = request.study.measure, {}
    for spec, description in fitting_models(request):
        heads = description.facts.heads if measure.heads == "all" else len(measure.heads)
        counts[spec.label] = heads * len(chosen_layers(measure.layers, description.facts))
    return counts


def inserted_characters(cell: Cell) -> int:
    return len(cell.text.of(INSERTED))


def border_tokens(cell: Cell) -> list[str]:
    """Tokens that contain both inserted text and other text."""
    flags = np.zeros(len(cell.text.text), dtype=bool)
    for span in cell.text.spans:
        if span.segment == INSERTED:
            flags[span.start : span.end] = True
    mixed = []
    for token in cell.tokens:
        inside = flags[token.start : token.end]
        if len(inside) and inside.any() and not inside.all():
            mixed.append(token.text)
    return mixed


def class_counts(cell: Cell, rules: dict[str, str]) -> dict[str, float]:
    """How many tokens of the prompt each class has; a token that mixes classes counts by its share."""
    shares = membership(rules, cell.text.text, cell.tokens, cell.text.spans)
    return dict(zip([*rules, OTHER], shares.sum(1).tolist(), strict=True))


def segment_counts(cell: Cell) -> dict[str, int]:
    return dict(Counter(cell.segments))
