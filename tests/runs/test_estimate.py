"""What `--dry-run` promises: all parts of a run are in it, and nothing takes no time or no space."""

from __future__ import annotations

from pathlib import Path

from attnscope.runs.audit import audits
from attnscope.runs.estimate import LOADED, MEASURED, estimated_bytes, estimated_report, estimated_seconds
from attnscope.studies import request_study, run_study
from tests.cli.conftest import Run

TIER = "command"


def test_a_run_takes_no_more_room_than_estimated(study_file: Path, tmp_path: Path) -> None:
    request = request_study(str(study_file))
    every = audits(request)
    estimated = estimated_report(request, every)[1] + sum(estimated_bytes(request, audit) for audit in every)
    folder = run_study(str(study_file), tmp_path / "run").path
    taken = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert estimated / 6 < taken < estimated


def test_loading_proofs_and_spot_check_are_in_the_time(study_file: Path) -> None:
    request = request_study(str(study_file), limit=1)
    audit = audits(request)[0]
    tokens = sum(len(cell.tokens) for cell in audit.cells)
    weights = sum(file.stat().st_size for file in audit.description.path.glob("*.safetensors"))
    speed = 1e6
    fast, slow = estimated_seconds(audit, 1e15), estimated_seconds(audit, speed)
    assert fast is not None
    assert slow is not None
    assert fast >= 0.9 * weights / LOADED
    quick, none = (estimated_seconds(audit, speed, level) for level in ("quick", "none"))
    assert slow > (quick or 0) > (none or 0) > fast
    assert slow > 6 * MEASURED * tokens * weights / 4 / 2 / speed  # at most half of the weights are a table
    assert estimated_report(request, [audit])[0] > len(request.study.figures)


def test_nothing_takes_no_time_or_no_room(run: Run, study_file: Path) -> None:
    told = run("run", study_file, "--dry-run").out
    assert "start and report" in told
    assert " 0 s" not in told
    assert " 0 MB" not in told
