"""Files that can't be written are refused in one line, before any work is done, and nothing is left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from attnscope.errors import AttnscopeError
from attnscope.places import check_place, written_whole
from attnscope.runs.folder import RunFolder
from attnscope.studies import run_study
from tests.cli.conftest import Run
from tests.runs.conftest import STUDY, save_tiny

TIER = "command"

TABLE = "model,condition,token_class,n,mean,low,high\nm,none,hash,3,0.5,0.4,0.6\n"


def a_file(home: Path) -> Path:
    (home / "file").write_text("mine")
    return home / "file"


def an_unwritable_folder(home: Path) -> Path:
    return allowing(home / "locked", 0o555)


def an_unreadable_folder(home: Path) -> Path:
    return allowing(home / "hidden", 0o000)


def allowing(folder: Path, mode: int) -> Path:
    folder.mkdir(mode=mode)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write everywhere")
    return folder


def the_system(home: Path) -> Path:
    if not Path("/proc/self").exists():
        pytest.skip("there is no /proc")
    return Path("/proc")


PLACES = [a_file, an_unwritable_folder, an_unreadable_folder, the_system]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("written")
    study = home / "study.yaml"
    models = {name: save_tiny(home / name, seed) for seed, name in enumerate(("one", "two"))}
    study.write_text(STUDY.format(**models), encoding="utf-8")
    return run_study(str(study), home / "run", limit=2).path


@pytest.mark.parametrize("place", PLACES)
def test_every_verb_refuses_a_file_it_cant_write(
    run: Run, finished: Path, tmp_path: Path, place: Callable[[Path], Path]
) -> None:
    folder = place(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)
    before = sorted(tmp_path.rglob("*"))
    run("new", folder / "x.yaml").refuses("can't write the study file", str(folder / "x.yaml"))
    run("figure", "bars", tmp_path / "t.csv", "-o", folder / "x.png").refuses("can't write the figure")
    run("measure", "hi", "--picture", folder / "x.png").refuses("can't write the picture")
    run("export", finished, "-o", folder / "x.parquet").refuses("can't write the table")
    run("compare", finished, "--out", folder / "x").refuses("can't write the comparisons")
    run("run", finished / "study.yaml", "--out", folder / "x").refuses("can't write into the run's folder")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_or_a_device_is_no_file_to_write(run: Run, finished: Path, tmp_path: Path) -> None:
    (tmp_path / "x.png").mkdir()
    run("measure", "hi", "--picture", tmp_path / "x.png").refuses("can't write the picture: it is a folder")
    run("export", finished, "-o", os.devnull).refuses("can't write the table: it is not a file")
    assert not Path(os.devnull).is_file()


def test_a_folder_that_is_not_there_has_to_be_made_first(run: Run, tmp_path: Path) -> None:
    run("new", tmp_path / "no" / "x.yaml").refuses("can't write the study file", "make the folder first")


def test_a_file_that_is_not_finished_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("before")
    check_place(path, "the text")
    with pytest.raises(AttnscopeError, match=r"can't write the text: No space left.*free some disk space"):
        half_write(path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"]


def half_write(path: Path) -> None:
    with written_whole(path, "the text") as partial:
        partial.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_an_interrupted_report_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "run" / ".report.partial-x" / "figures").mkdir(parents=True)
    (tmp_path / "run" / ".report.partial-x" / "figures" / ".mass.svg.partial").write_text("half")
    (tmp_path / "run" / "manifest.json").write_text('{"versions": {"attnscope": "0"}}')
    with RunFolder(tmp_path / "run").locked():
        assert {each.name for each in (tmp_path / "run").iterdir()} == {"manifest.json", ".lock"}
