"""Effects of interventions in a report: in the answer, on the page, in comparisons.md and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from attnscope.analysis.intervention_effects import EFFECTS
from attnscope.analysis.run import Run
from attnscope.cli.main import app
from attnscope.report.answer import LIMIT, NOTHING, answer
from attnscope.report.effects import BESIDE, COLUMNS, HEADING, MOST, effects_section, write_effects
from attnscope.report.write import report_run
from tests.analysis.conftest import measured, performed, study, tiny
from tests.analysis.planted import HIDE, INTERVENTIONS, PROMPTS, Row, outcome_rows, swept
from tests.figures.test_claims import refuse_bare_claims
from tests.figures.test_effect import CLASSES, DEPTH, HEADS, planted
from tests.handmade import with_outcomes

__all__ = ["measured", "planted", "tiny"]

TIER = "command"


def test_the_answer_has_a_statement_for_each_intervention_and_each_sweep(planted: Run) -> None:
    words = answer(planted)
    text = "\n".join(words)
    assert '"used": it significantly lowers the log probability of the answer by 1.' in text
    assert "of it goes significantly beyond the control" in text
    assert '"ignored": its effect on the log probability of the answer is significantly within the margin' in text
    assert '"classes" on question: it significantly lowers' in text
    assert '"depth", layer by layer: Of 2 windows tested, 1 differs significantly from the control' in text
    assert '"heads", head by head: Alone, 1 of 8 heads significantly changes' in text
    assert NOTHING not in words
    assert '(control)": it' not in text


def test_a_report_has_the_effects_on_its_page_and_all_of_them_as_a_table(planted: Run) -> None:
    reported = report_run(planted.path)
    page = reported.page.read_text(encoding="utf-8")
    assert f'<h2 id="effects">{HEADING}</h2>' in page
    assert "significantly lowers the log probability of the answer" in page
    table = pl.read_csv(planted.path / "comparisons" / "effects.csv")
    assert table.columns == list(COLUMNS) == list(EFFECTS)
    assert set(table["score"]) == {"logprob", "kl", "flips", "accuracy"}
    assert set(table["kind"]) == {"change", "beyond", "placebo"}


def test_compare_writes_effects_where_there_is_nothing_else_to_compare(planted: Run, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(planted.path), "--out", str(tmp_path / "made")])
    assert result.exit_code == 0, result.output
    assert "significantly lowers" in result.output
    assert [each.name for each in (tmp_path / "made").iterdir()] == ["effects.csv"]


def test_a_run_without_interventions_has_no_word_of_them(measured: Run, tmp_path: Path) -> None:
    assert effects_section(measured) is None
    assert write_effects(measured, tmp_path) is None
    assert NOTHING in answer(measured)
    assert not list(tmp_path.iterdir())


def test_comparisons_of_conditions_and_effects_stand_side_by_side(tiny: Path, tmp_path: Path) -> None:
    run = performed(study([{"label": "one", "source": str(tiny)}]), tmp_path / "plain")
    assert LIMIT in answer(run)
    edited = with_outcomes(run, tmp_path / "edited", INTERVENTIONS, outcome_rows(range(9)))
    words = answer(edited)
    assert BESIDE in words
    assert LIMIT not in words
    report_run(edited.path)
    page = (edited.path / "comparisons" / "comparisons.md").read_text(encoding="utf-8")
    assert f"## {HEADING}" in page


def test_many_interventions_are_counted_in_the_answer_and_listed_in_the_section(measured: Run, tmp_path: Path) -> None:
    names = [f"number {place}" for place in range(12)]
    specs: list[Any] = ["none", *({"name": name, "hide": HIDE, "control": "none"} for name in names)]
    run = with_outcomes(measured, tmp_path / "run", specs, outcome_rows(PROMPTS, dict.fromkeys(names, 0.0)))
    words = answer(run)
    assert f"{12 - MOST} more effects: see effects of interventions." in words
    section = effects_section(run)
    assert section is not None
    assert "number 11" in str(section)


def test_an_intervention_that_can_be_made_in_no_prompt_is_named(measured: Run, tmp_path: Path) -> None:
    rows: list[Row] = [row for row in outcome_rows(PROMPTS) if not row["intervention"].startswith("ignored")]
    run = with_outcomes(measured, tmp_path / "run", INTERVENTIONS, rows)
    assert "In no prompt could these be made: ignored" in str(effects_section(run))
    only = [row for row in rows if row["intervention"] == "none"]
    nothing = with_outcomes(measured, tmp_path / "none", INTERVENTIONS, only)
    assert NOTHING in answer(nothing)
    report_run(nothing.path)


@pytest.mark.parametrize("by", [DEPTH, HEADS, CLASSES])
def test_where_there_is_nothing_no_sentence_claims_something(measured: Run, tmp_path: Path, by: dict[str, Any]) -> None:
    keys = {"depth": ("layer",), "heads": ("layer", "head"), "classes": ("token_class",)}[by["name"]]
    places: dict[tuple[Any, ...], float] = {(0,): 0.0, (1,): 0.0}
    if by is HEADS:
        places = {(0, 0): 0.0, (1, 3): 0.0}
    if by is CLASSES:
        places = {("question",): 0.0}
    rows = [*outcome_rows(PROMPTS, {}), *swept(by["name"], PROMPTS, places, *keys)]
    run = with_outcomes(measured, tmp_path / "run", ["none", {**by, "control": "none"}], rows)
    section = effects_section(run)
    assert section is not None
    from attnscope.figures.prose import Document

    refuse_bare_claims(Document("Effects", section.blocks[1:]))  # type: ignore[arg-type]
    assert "significantly" not in " ".join(answer(run))
