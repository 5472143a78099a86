"""The evidence says what was compared with what, and its numbers are those of the run."""

from __future__ import annotations

import re

import polars as pl
import pytest

from attnscope.analysis.run import Run
from attnscope.figures import prose
from attnscope.figures.prose import Document
from attnscope.report.evidence import evidence_card

TIER = "command"


@pytest.fixture(scope="module")
def card(reported: Run) -> Document:
    return evidence_card(reported)


def section(card: Document, heading: str) -> str:
    (found,) = [each for each in card.sections if each.heading == heading]
    return prose.alt_text(Document("", (found,)))


def test_a_model_is_compared_with_eager_attention_and_its_rows_add_up(reported: Run, card: Document) -> None:
    words = section(card, "one")
    (difference,) = re.findall(r"no share differs by more than ([\d.e-]+)\.", words)
    assert float(difference) < 1e-5
    (error,) = re.findall(r"add up to 1 in every cell, within ([\d.e-]+)\.", words)
    keys = ["condition", "prompt", "queries", "layer", "head"]
    sums = reported.table("mass").group_by(keys).agg(pl.col("mass").sum()).collect()["mass"]
    assert float(error) == pytest.approx(float((sums - 1).abs().max()), rel=0.1, abs=1e-12)  # type: ignore[arg-type]
    assert "Mask: causal" in words
    assert re.search(r"SHA-256 [0-9a-f]{64}\.", words)


def test_prompts_are_counted_by_condition_and_dropped_ones_by_reason(card: Document) -> None:
    words = section(card, "Prompts")
    assert "one, none: 9 prompts." in words
    assert "one, filler: 8 prompts." in words
    assert "8 of 9 prompts were measured under every model and condition." in words
    assert re.search(r"Dropped, one, filler, 1 prompt: the prompt has N tokens", words)
    assert "No prompt was dropped" not in words


def test_a_run_without_losses_says_so(hostile: Run) -> None:
    assert "No prompt was dropped." in section(evidence_card(hostile), "Prompts")


def test_what_it_was_made_with_can_be_repeated(reported: Run, card: Document) -> None:
    words = section(card, "Made with")
    assert f"Seed {reported.study.seed};" in words
    assert "torch " in words


def test_the_markdown_file_is_the_document(reported: Run, card: Document) -> None:
    written = (reported.path / "evidence.md").read_text(encoding="utf-8")
    assert written == prose.markdown(card)
    checked = "## How much was checked\n\n- Evidence: full (proof and spot check).\n\n"
    assert written.startswith(f"# Evidence\n\n{checked}## one\n\n- ")
