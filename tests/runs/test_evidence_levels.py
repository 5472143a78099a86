"""How much evidence a run gathers: full, quick or none; what it then says, and that levels never mix unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnscope.analysis.run import Run
from attnscope.clock import duration
from attnscope.errors import AttnscopeError
from attnscope.lens import load
from attnscope.report.write import report_run
from attnscope.runs.evidence import UNPROVEN
from attnscope.runs.manifest import Timings
from attnscope.studies import perform_request, request_study, run_study

TIER = "command"


def levels(run: Run) -> dict[str, str]:
    return {label: facts.level for label, facts in run.manifest.models.items()}


def test_quick_proves_and_does_not_spot_check(study_file: Path, tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run", models=["one"], evidence="quick")
    facts = run.manifest.models["one"]
    assert facts.is_proven
    assert (facts.sample, facts.unproven, run.manifest.evidence) == (None, 0, "quick")
    assert "spot check" not in run.manifest.timings.phases
    words = (run.path / "evidence.md").read_text(encoding="utf-8")
    assert "Evidence: quick (proof only)." in words
    assert "not known how far rounding" in words
    assert "UNPROVEN" not in words
    assert UNPROVEN not in json.loads((run.path / "answer.json").read_text(encoding="utf-8"))


def test_none_compares_nothing_and_says_so_everywhere(study_file: Path, tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run", models=["one"], evidence="none")
    facts = run.manifest.models["one"]
    assert not facts.is_proven
    assert (facts.unproven, run.manifest.evidence) == (run.manifest.cells, "none")
    evidence = (run.path / "evidence.md").read_text(encoding="utf-8")
    assert "Evidence: none" in evidence
    assert f"WARNING: {UNPROVEN}" in evidence
    assert f"{run.manifest.cells} cells of it were measured without a proof: UNPROVEN." in evidence
    assert json.loads((run.path / "answer.json").read_text(encoding="utf-8"))[-1] == UNPROVEN
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert page.count("Unproven numbers (evidence: none).") >= 1
    reading = (run.path / "figures" / "mass.md").read_text(encoding="utf-8")
    assert "Unproven numbers (evidence: none)." in reading


def test_the_numbers_are_the_same_at_every_level(study_file: Path, tmp_path: Path) -> None:
    folders = {level: tmp_path / level for level in ("full", "quick", "none")}
    for level, folder in folders.items():
        perform_request(request_study(str(study_file), models=["one"], evidence=level), folder)
    tables = {level: Run(folder).manifest.tables for level, folder in folders.items()}
    for name in ("tokens", "mass", "heads"):  # prompts name the cells, and a cell without a proof is another one
        assert tables["full"][name] == tables["quick"][name] == tables["none"][name]


def test_more_evidence_is_gathered_when_asked_for_and_never_lost(study_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def perform(level: str, limit: int | None = None) -> tuple[int, int, bool]:
        request = request_study(str(study_file), models=["one"], evidence=level, limit=limit)
        done = perform_request(request, folder)
        return done.measured, done.reused, done.unchanged

    assert perform("none", 2) == (6, 0, False)
    assert perform("none", 2) == (0, 6, True)
    assert perform("quick", 2) == (6, 0, False)  # what was measured without a proof is measured again with one
    assert levels(Run(folder)) == {"one": "quick"}
    assert perform("none", 2) == (0, 6, True)  # there is more than asked for
    assert perform("full", 2) == (0, 6, False)  # only the spot check was missing
    assert levels(Run(folder)) == {"one": "full"}
    assert perform("none") == (3, 6, False)  # one more prompt, which is not proven
    facts = Run(folder).manifest.models["one"]
    assert (facts.unproven, facts.is_proven, facts.level) == (3, True, "none")
    assert perform("full") == (3, 6, False)
    assert levels(Run(folder)) == {"one": "full"}


def test_a_spot_check_of_cells_that_left_the_run_is_forgotten(study_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    perform_request(request_study(str(study_file), models=["one"]), folder)
    perform_request(request_study(str(study_file), models=["one"], limit=1, evidence="quick"), folder)
    assert levels(Run(folder)) == {"one": "quick"}


def test_a_report_is_written_again_when_there_is_more_evidence(study_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_study(str(study_file), folder, models=["one"], evidence="none")
    run_study(str(study_file), folder, models=["one"], evidence="full")
    assert "Evidence: full" in (folder / "evidence.md").read_text(encoding="utf-8")
    assert "Unproven" not in (folder / "report.html").read_text(encoding="utf-8")


def test_a_level_that_does_not_exist_is_refused(study_file: Path) -> None:
    with pytest.raises(AttnscopeError, match="there is no level of evidence 'quik'") as refused:
        request_study(str(study_file), evidence="quik")
    assert "quick" in refused.value.allowed


def test_a_lens_that_does_not_prove_says_so_in_every_record(tiny_models: tuple[Path, Path]) -> None:
    lens = load(tiny_models[0])
    lens.proving = False
    record = lens.measure("Look at this #.", ["last", "all"])
    assert record.evidence["check"]["difference"] is None
    assert len(record.evidence["unproven"]) == len(record.layers)
    lens.proving = True
    again = lens.measure("Look at this #.", ["last", "all"])
    assert again.evidence["unproven"] == []
    assert again.evidence["check"]["difference"] is not None
    assert (again.received.values == record.received.values).all()


def test_phases_are_timed_apart_and_add_up(study_file: Path, tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run")
    timings = run.manifest.timings
    assert set(timings.phases) == {"planning", "loading", "proof", "measuring", "spot check", "tables", "figures"}
    assert sum(timings.phases.values()) <= timings.seconds + 0.01  # no second counts twice
    shown = f"figures {duration(timings.phases['figures'])}"
    assert shown in (run.path / "evidence.md").read_text(encoding="utf-8")
    before = (run.path / "evidence.md").read_bytes()
    report_run(run.path)  # another command, which measured nothing
    assert (run.path / "evidence.md").read_bytes() == before
    assert Run(run.path).manifest.timings == timings


def test_a_run_that_goes_on_adds_up_what_earlier_commands_spent(study_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    spent: list[float] = []
    for limit in (1, 2, 3):
        perform_request(request_study(str(study_file), models=["one"], limit=limit), folder)
        timings: Timings = Run(folder).manifest.timings
        assert timings.cells_measured == 3
        assert timings.earlier == pytest.approx(sum(spent), abs=0.01)
        spent.append(timings.seconds)
    assert "generation" not in timings.phases
