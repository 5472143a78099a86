"""The bundled studies' prompts under their conditions: complete, and what is compared differs in one thing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from attnscope.models.tokenization import Tokenization
from attnscope.runs.cells import Cell, CellMaker
from attnscope.study.file import bundled_studies, read_study
from attnscope.study.prompts import read_prompts
from attnscope.study.schema import ModelSpec, Study
from attnscope.text.classes import membership

CONTEXT = 8192  # of the default model
STUDIES = ("rag", "lookback", "system-prompt", "injection", "needle", "needle-long", "sinks")

Cells = dict[tuple[str, int], Cell]


@cache
def cells_of(name: str, tokenization: Tokenization) -> tuple[Study, Cells]:
    """Made once for all tests, which only read them."""
    study = read_study(bundled_studies()[name])
    maker = CellMaker(study, read_prompts(study, Path()), ModelSpec(label="m", source="m"), tokenization, CONTEXT)
    cells, dropped = maker.make()
    assert not dropped, dropped[0].reason
    return study, {(cell.condition, cell.prompt.number): cell for cell in cells}


def shown(cell: Cell, segment: str) -> str:
    return cell.text.of(segment)


@pytest.mark.parametrize("name", STUDIES)
def test_every_prompt_has_every_condition_and_every_class_some_tokens(
    name: str, smollm2_tokenization: Tokenization
) -> None:
    study, cells = cells_of(name, smollm2_tokenization)
    assert len(cells) == len(study.conditions) * (study.prompts.count or 0)
    totals = dict.fromkeys([*study.classes, "other"], 0.0)
    for cell in cells.values():
        shares = membership(study.rules, cell.text.text, cell.tokens, cell.text.spans)
        for label, share in zip(totals, shares.sum(1), strict=True):
            totals[label] += share
    assert all(total > 0 for total in totals.values()), totals


def test_lengths_are_matched_where_a_design_says_so(smollm2_tokenization: Tokenization) -> None:
    for name, pairs in {
        "lookback": [("none", "shuffled", "context"), ("none", "other", "context")],
        "system-prompt": [("none", "other", "system")],
        "injection": [("injected", "control", "inserted"), ("injected", "sentence", "inserted")],
    }.items():
        study, cells = cells_of(name, smollm2_tokenization)
        for number in range(study.prompts.count or 0):
            for one, two, segment in pairs:
                counts = [
                    sum(each.split(".")[0] == segment for each in cells[condition, number].segments)
                    for condition in (one, two)
                ]
                assert counts[0] == counts[1] > 0


def test_sentences_are_hidden_whole_and_in_the_same_place(smollm2_tokenization: Tokenization) -> None:
    _, cells = cells_of("injection", smollm2_tokenization)
    for (condition, number), cell in cells.items():
        if condition in ("injected", "control"):
            assert shown(cell, "inserted") == " " + cell.prompt.beside[condition]
            assert cell.text.text.replace(shown(cell, "inserted"), "", 1) == cells["none", number].text.text


@pytest.mark.parametrize("name", ["needle", "needle-long"])
def test_a_needle_is_found_at_its_depth_in_every_length(name: str, smollm2_tokenization: Tokenization) -> None:
    depths = {"start": 0.0, "quarter": 0.25, "middle": 0.5, "three quarters": 0.75, "end": 1.0}
    study, cells = cells_of(name, smollm2_tokenization)
    for (condition, _), cell in cells.items():
        parts = [span for span in cell.text.spans if span.segment.startswith("haystack.")]
        before = sum(span.end - span.start for span in parts[: [span.role for span in parts].index("needle")])
        hay = sum(span.end - span.start for span in parts if span.role != "needle")
        wanted = depths.get(condition.partition(" ")[2], 0.5)
        assert before / hay == pytest.approx(wanted, abs=0.08)
        assert "\n\n\n" not in cell.text.text
        if condition.startswith("400") or condition == "short":
            assert 300 < len(cell.tokens) < 500
    assert max(len(cell.tokens) for cell in cells.values()) <= CONTEXT
    assert (name == "needle-long") == any(len(cell.tokens) > 8000 for cell in cells.values())
    assert study.prompts.answer is not None


def test_what_comes_first_changes_and_the_queries_stay_the_same_tokens(smollm2_tokenization: Tokenization) -> None:
    study, cells = cells_of("sinks", smollm2_tokenization)
    for number in range(study.prompts.count or 0):
        base = cells["none", number]
        rest = [base.tokens[row].id for row in base.rows["rest"]]
        firsts = {name: cells[name, number].tokens[0].text for name in ("none", "newline", "word", "start", "repeated")}
        assert firsts["newline"] == "\n"
        assert firsts["start"] == "<|im_start|>"
        assert firsts["repeated"] == firsts["none"]
        assert firsts["word"] != firsts["none"]
        for condition in study.conditions:
            cell = cells[condition.name, number]
            assert [cell.tokens[row].id for row in cell.rows["rest"]] == rest
