"""Quantities whose classes and sets must not overlap, such as a share: a token that counts twice makes them wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from attnscope.errors import StoppingError
from attnscope.quantities import QUANTITIES
from attnscope.study.schema import Study
from attnscope.text.classes import REMOVED, both_count, removed_tokens

if TYPE_CHECKING:
    from attnscope.runs.cells import Cell


def refuse_overlapping(study: Study, cell: Cell) -> None:
    """Refuse a prompt in which two sets overlap that a quantity needs to be disjoint."""
    prompt = cell.text.text, cell.tokens, cell.text.spans
    for place, one, two in _pairs(study):
        twice = both_count(study.rules, study.set_rules, one, two, *prompt)
        twice &= ~removed_tokens(study.removed_rules, *prompt)
        if twice.any():
            token = cell.tokens[int(twice.argmax())]
            raise StoppingError(
                f"'{one}' and '{two}' overlap: token {token.position}, {token.text!r}, belongs to both",
                where=f"{place}: prompt {cell.prompt.name}, condition {cell.condition}",
                allowed="classes and sets without a common character or token",
                todo="choose other classes, or change their rules; 'attnscope tokens' shows what they claim",
            )


def _pairs(study: Study) -> Iterator[tuple[str, str, str]]:
    """The quantity, and two of its sets that must be disjoint."""
    for name, quantity in study.quantities.items():
        with QUANTITIES.blamed(quantity.key, "disjoint"):
            names = dict.fromkeys(used for _, used in quantity.disjoint)
        for one, two in combinations(names, 2):
            if REMOVED not in (one, two):
                yield f"quantities.{name}", one, two
