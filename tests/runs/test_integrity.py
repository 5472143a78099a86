"""Flipped, cut and foreign bytes in any file of a run are noticed before a number is shown, and `run` repairs them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnscope.analysis.received import HeadChoice, head_along, read_attention
from attnscope.analysis.run import Run
from attnscope.analysis.sides import masses
from attnscope.errors import AttnscopeError
from attnscope.runs.integrity import DamagedError
from attnscope.runs.manifest import VERSION, OldFormatError, read_manifest
from attnscope.studies import perform_request, request_study, run_study
from tests.cli.conftest import Run as Command
from tests.runs.conftest import STUDY
from tests.runs.test_runs import contents

TIER = "command"

FILES = ["manifest.json", "study.yaml", "prompts.parquet", "tokens.parquet", "mass.parquet", "heads.parquet", "shards"]


@pytest.fixture(scope="module")
def finished(tiny_models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("finished")
    study = home / "study.yaml"
    study.write_text(STUDY.format(one=tiny_models[0], two=tiny_models[1]), encoding="utf-8")
    return run_study(str(study), home / "run").path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def file_of(run: Path, name: str) -> Path:
    return sorted((run / name).iterdir())[0] if (run / name).is_dir() else run / name


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << place % 8
    path.write_bytes(bytes(data))


def look_at_everything(path: Path) -> None:
    run = Run(path)
    for name in ("prompts", "tokens", "mass", "heads"):
        run.table(name).collect()
    for model in run.models:
        for condition in run.conditions:
            masses(run, model, condition, "all")
            list(read_attention(run, HeadChoice(model, "all", [0, 1], [0, 1, 2, 3]), condition))
            head_along(run, HeadChoice(model, "last", (0,), (1,)), condition)


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_is_noticed_and_the_file_is_named(copy: Path, name: str) -> None:
    look_at_everything(copy)
    path = file_of(copy, name)
    before, size = path.read_bytes(), path.stat().st_size
    chance = random.Random(name)  # noqa: S311
    for place in [0, size - 1, *(chance.randrange(size) for _ in range(10))]:
        flip(path, place)
        with pytest.raises(AttnscopeError, match=path.name):
            look_at_everything(copy)
        path.write_bytes(before)
    look_at_everything(copy)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PAR1 something else"),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.unlink(),
    ],
    ids=["cut", "empty", "foreign", "longer", "gone"],
)
def test_cut_foreign_and_missing_files_are_noticed(copy: Path, name: str, damage: Callable[[Path], Any]) -> None:
    path = file_of(copy, name)
    damage(path)
    with pytest.raises(AttnscopeError) as refused:
        look_at_everything(copy)
    assert path.name in str(refused.value) or "no run here" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_shard_that_changes_while_a_run_is_open_is_noticed(copy: Path) -> None:
    run = Run(copy)
    head = HeadChoice("one", "all", (0,), (1,))
    first = head_along(run, head, "none")
    assert len(first)
    for path in (copy / "shards").iterdir():
        data = path.read_bytes()
        path.unlink()  # another file in its place: the open one stays as it was
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DamagedError, match="a shard of the run was changed"):
        head_along(run, HeadChoice("one", "all", (1,), (1,)), "none")


def test_a_shard_in_the_place_of_another_is_noticed(copy: Path) -> None:
    first, second = sorted((copy / "shards").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    with pytest.raises(DamagedError, match=first.name):
        look_at_everything(copy)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_run_repairs_what_is_damaged_to_the_same_bytes_and_says_so(
    copy: Path, finished: Path, name: str, damage: str
) -> None:
    path = file_of(copy, name)
    if damage == "flipped":
        flip(path, path.stat().st_size // 2)
    else:
        path.unlink()
    study = str(finished.parent / "study.yaml")
    outcome = perform_request(request_study(study), copy)
    assert not outcome.unchanged
    if (name, damage) != ("manifest.json", "gone"):  # then nothing says that there was one
        assert any(path.name in line for line in outcome.repaired), outcome.repaired
    assert (outcome.measured > 0) == (name == "shards")
    assert outcome.measured + outcome.reused == 18
    look_at_everything(copy)
    assert contents(copy) == contents(finished)
    assert perform_request(request_study(study), copy).unchanged


def test_the_command_says_what_it_repaired(copy: Path, finished: Path, run: Command) -> None:
    study = str(finished.parent / "study.yaml")
    assert "nothing to do" in run("run", study, "--out", str(copy)).out
    flip(copy / "mass.parquet", 1000)
    repaired = run("run", study, "--out", str(copy)).out
    assert "repaired: mass.parquet was missing, changed or damaged: written again" in repaired
    assert "nothing to do" in run("run", study, "--out", str(copy)).out


@pytest.mark.parametrize("name", ["prompts.parquet", "mass.parquet", "shards"])
def test_a_report_that_cant_be_made_leaves_the_one_before(copy: Path, run: Command, name: str) -> None:
    flip(file_of(copy, name), 200)
    before = everything_in(copy)
    run("report", copy).refuses("changed or damaged", "repeat the same 'attnscope run'")
    assert everything_in(copy) == before
    assert copy / "figures" / "mass.svg" in before


def everything_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_edited_comment_in_the_runs_own_study_file_is_taken_over(copy: Path) -> None:
    (copy / "study.yaml").write_text("# mine\n" + (copy / "study.yaml").read_text())
    with pytest.raises(DamagedError, match="study file was changed"):
        Run(copy)
    outcome = perform_request(request_study(str(copy / "study.yaml")), copy)
    assert (outcome.measured, outcome.repaired) == (0, [])
    assert Run(copy).study.title == "A tiny study"


def former(copy: Path) -> None:
    """As the version before left it: a manifest without version and checksum, cells and received.parquet."""
    content = json.loads((copy / "manifest.json").read_text())
    for key in ("sha256", "version", "shards", "study_sha256", "engine"):
        del content[key]
    content["tables"] = "a mark"
    content["study"]["measure"] = {"queries": ["last"], "layers": "all", "heads": "all", "entropy": True}
    (copy / "manifest.json").write_text(json.dumps(content))
    shutil.rmtree(copy / "shards")
    (copy / "cells").mkdir()
    (copy / "cells" / "0.safetensors").write_bytes(b"cells")
    (copy / "received.parquet").write_bytes(b"PAR1")


def test_a_run_of_the_version_before_is_refused_with_the_command_and_measured_again(
    copy: Path, finished: Path, run: Command
) -> None:
    former(copy)
    command = f"attnscope run {copy / 'study.yaml'} --out {copy}"
    with pytest.raises(OldFormatError, match=r"earlier version of attnscope.*attnscope run"):
        Run(copy)
    report = run("report", str(copy))
    assert report.code == 2
    assert command in report.err
    outcome = perform_request(request_study(str(copy / "study.yaml")), copy)
    assert outcome.measured == 18
    assert "earlier version" in outcome.repaired[0]
    assert contents(copy) == contents(finished)
    assert not (copy / "cells").exists()
    assert not (copy / "received.parquet").exists()


def test_a_run_of_a_later_version_is_refused_and_left_alone(copy: Path, finished: Path) -> None:
    later = VERSION + 1
    text = (copy / "manifest.json").read_text().replace(f'"version": {VERSION}', f'"version": {later}')
    text = text.replace(json.loads(text)["sha256"], "")
    (copy / "manifest.json").write_text(text)
    for attempt in (Run, lambda path: perform_request(request_study(str(finished.parent / "study.yaml")), path)):
        with pytest.raises(AttnscopeError, match=rf"newer version of attnscope \(format {later}\)"):
            attempt(copy)
    assert (copy / "manifest.json").read_text() == text


def test_a_manifest_that_is_read_and_written_is_the_same_text(finished: Path) -> None:
    manifest = read_manifest(finished)
    assert manifest is not None
    assert manifest.text() == (finished / "manifest.json").read_text(encoding="utf-8")
    assert manifest.tables["mass"].rows == 18 * 3 * 2 * 4 * 5
    assert sum(len(shard.cells) for shard in manifest.shards) == 18
    assert manifest.engine == "local"
