"""--quiet prints the result, or the path of what was written, and nothing else; warnings go to standard error."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.runs.conftest import study_file, tiny_models

TIER = "command"
__all__ = ["study_file", "tiny_models"]


def test_a_quiet_run_prints_the_path_of_its_report(run: Run, study_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("--out", folder, "--models", "one", "--evidence", "quick", "--quiet")
    page, warning = (
        f"{folder / 'report.html'}\n",
        "attnscope: warning: figure models was not drawn: what it shows was not ",
    )
    for warnings in (f"{warning}measured\n", ""):  # the second time there is nothing to do
        done = run("run", study_file, *words)
        assert (done.code, done.out, done.err) == (0, page, warnings)
    (folder / "evidence.md").unlink()  # which is repaired
    done = run("run", study_file, *words)
    assert (done.out, done.err) == (page, f"{warning}measured\n")
    done = run("report", folder, "-q")
    assert (done.code, done.out, done.err) == (0, page, f"{warning}measured\n")
    done = run("compare", folder, "--quiet")
    names = ["heads.csv", "classes.csv", "comparisons.md", "multiverse.csv"]
    assert [Path(line).name for line in done.out.splitlines()] == names
    assert done.err == ""
    done = run("plan", study_file, "--models", "one", "--quiet")
    assert done.err == ""
    assert "3 prompts" in done.out


def test_a_run_into_the_folder_of_another_study_says_what_it_replaces(
    run: Run, study_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    words = ("--out", folder, "--models", "one", "--evidence", "none", "--quiet")
    assert "held the study" not in run("run", study_file, *words).err
    text = study_file.read_text(encoding="utf-8")
    study_file.write_text(text.replace("A tiny study", "Its second title"), encoding="utf-8")
    assert "held the study" not in run("run", study_file, *words).err  # the same prompts: it was edited
    other = text.replace("A tiny study", "Another study").replace("intro: Now", "intro: Then")
    study_file.write_text(other, encoding="utf-8")
    assert "held the study" not in run("run", study_file, *words).err  # it shares prompts
    other = text.replace("intro: ", "intro: Here ").replace('Here "', '"Here ')
    study_file.write_text(other, encoding="utf-8")
    done = run("run", study_file, *words)
    assert done.code == 0
    assert f"warning: {folder} held the study 'Another study'; its tables, figures and report are" in done.err
    assert "held the study" not in run("run", study_file, *words).err


def test_errors_are_printed_all_the_same(run: Run, study_file: Path, tmp_path: Path) -> None:
    run("run", study_file, "--quiet", "--evidence", "ful").refuses("'ful'", "--evidence", "near: full")
    run("run", "no-such-study", "--quiet").refuses("there is no such study")
    run("report", tmp_path, "--quiet").refuses("there is no run here")


def test_the_end_of_a_run_shows_where_the_time_went(run: Run, study_file: Path, tmp_path: Path) -> None:
    done = run("run", study_file, "--out", tmp_path / "run", "--models", "one", "--evidence", "none")
    lines = done.out.splitlines()
    assert lines[0] == "measured 9 cells (615 tokens)"
    assert lines[1].startswith("time: ")
    assert any(line == "evidence: none (neither: nothing shows that the numbers are exact)" for line in lines)
    assert lines[-1].startswith("These numbers are unproven")
