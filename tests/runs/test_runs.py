"""A run holds what eager attention says, comes back whole after any stop, and measures nothing twice."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnscope
from attnscope.errors import AttnscopeError
from attnscope.runs import batches as batches_module
from attnscope.runs.batches import PADDING, Budget, batches
from attnscope.runs.columns import TABLES
from attnscope.runs.manifest import read_manifest
from attnscope.studies import perform_request, request_study, run_study
from tests.handmade import exported
from tests.runs import brute
from tests.tolerances import SHALLOW

TIER = "command"

TABLE_FILES = [f"{name}.parquet" for name in TABLES]


def contents(folder: Path) -> dict[str, bytes]:
    """The tables, and the shards that they are made from."""
    manifest = read_manifest(folder)
    assert manifest is not None
    shards = [f"shards/{shard.sha256}.safetensors" for shard in manifest.shards]
    return {name: (folder / name).read_bytes() for name in [*TABLE_FILES, *shards]}


def test_masses_are_those_of_eager_attention(study_file: Path, tiny_models: tuple[Path, Path], tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run")
    found = run.table("mass").collect()
    classes = {"hash": brute.characters("#"), "space": brute.pattern(r"\s")}
    for label, folder in zip(("one", "two"), tiny_models, strict=True):
        want = brute.masses(run.path, attnscope.load(str(folder)), label, classes, ["last", "all", "question"])
        keys = ["condition", "prompt", "queries", "layer", "head", "token_class"]
        both = found.filter(model=label).join(want, on=keys, suffix="_want")
        base = both.filter(condition="none")  # where nothing is inserted that the brute force doesn't know of
        assert len(base.filter(pl.col("token_class").is_in(["hash", "space", "marks"]))) == 3 * 3 * 2 * 4 * 3
        assert (base["mass"] - base["mass_want"]).abs().max() <= SHALLOW  # type: ignore[operator]
        hashes = both.filter(pl.col("token_class") == "hash")
        assert (hashes["mass"] - hashes["mass_want"]).abs().max() <= SHALLOW  # type: ignore[operator]
    sums = found.group_by("model", "condition", "prompt", "queries", "layer", "head").agg(
        pl.col("mass", "expected").sum()
    )
    assert ((sums["mass"] - 1).abs() <= SHALLOW).all()
    assert ((sums["expected"] - 1).abs() <= SHALLOW).all()


def test_the_tables_have_the_columns_of_the_contract_in_the_studys_order(study_file: Path, tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run")
    for name, columns in TABLES.items():
        assert run.table(name).collect_schema().names() == [column.name for column in columns]
    prompts = run.table("prompts").collect()
    assert prompts["condition"].to_list() == (["none"] * 3 + ["filler"] * 3 + ["sentence"] * 3) * 2
    assert prompts.filter(pl.col("condition") != "none")["inserted"].to_list() == [24] * 12
    tokens = run.table("tokens").filter(pl.col("condition") == "filler").collect()
    assert tokens.filter(segment="inserted")["base_position"].is_null().all()
    assert (run.path / "report.html").stat().st_size > 100_000
    for figure in run.study.figures:
        for ending in (".svg", ".png", ".pdf", ".vl.json", ".csv", ".md"):
            assert (run.path / "figures" / f"{figure.name}{ending}").stat().st_size > 100, (figure.name, ending)


def test_a_finished_run_does_nothing_and_a_changed_study_only_what_changed(study_file: Path, tmp_path: Path) -> None:
    from attnscope.runs.folder import RunFolder
    from attnscope.runs.perform import perform

    folder = RunFolder(tmp_path / "run")
    first = perform(request_study(str(study_file)), folder)
    assert (first.measured, first.reused, first.unchanged) == (18, 0, False)
    before, received = contents(folder.path), exported(folder.path)
    stamps = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*.*")}
    again = perform(request_study(str(study_file)), folder)
    assert again.unchanged
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*.*")} == stamps
    study_file.write_text(study_file.read_text().replace('hash: "#"', 'hash: "#*"'))
    reclassed = perform(request_study(str(study_file)), folder)
    assert (reclassed.measured, reclassed.reused) == (0, 18)
    assert exported(folder.path).equals(received)
    assert not pl.read_parquet(folder.path / "mass.parquet").equals(pl.read_parquet(io.BytesIO(before["mass.parquet"])))
    study_file.write_text(study_file.read_text().replace("tokens: 24", "tokens: 30"))
    longer = perform(request_study(str(study_file)), folder)
    assert (longer.measured, longer.reused) == (12, 6)


def test_another_models_weights_under_the_same_name_are_measured_anew(tmp_path: Path, study_file: Path) -> None:
    from tests.runs.conftest import save_tiny

    folder = save_tiny(tmp_path / "mine", 1)
    run = run_study(str(study_file), tmp_path / "run", models=["one"], swaps={"one": str(folder)})
    first = exported(run)
    save_tiny(folder, 9)
    second = run_study(str(study_file), tmp_path / "run", models=["one"], swaps={"one": str(folder)})
    assert not first.equals(exported(second))


SMALL_BATCHES = {"cpu": 200}


def perform_elsewhere(study: str, out: str) -> None:
    os.setsid()
    batches_module.ENOUGH.update(SMALL_BATCHES)
    perform_request(request_study(study), Path(out))


def with_more_prompts(study_file: Path, count: int) -> None:
    """Prompts of many lengths, so that a batch holds several and what is left of one could be batched otherwise."""
    line = '    - {{intro: "Look.", question: "{}?"}}\n'
    more = "".join(
        line.format(" ".join(f"Is {number} more" for number in range(each % 7 + 1))) for each in range(count)
    )
    study_file.write_text(study_file.read_text().replace("  items:\n", f"  items:\n{more}"))


@pytest.mark.model
def test_a_run_killed_at_any_moment_goes_on_to_the_same_tables(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_more_prompts(study_file, 12)
    monkeypatch.setitem(batches_module.ENOUGH, "cpu", SMALL_BATCHES["cpu"])
    whole = tmp_path / "whole"
    perform_request(request_study(str(study_file)), whole)
    out = tmp_path / "killed"
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["attnscope.studies", "transformers.models.llama.modeling_llama"])
    chance = random.Random(0)  # noqa: S311
    kills, files = 0, 0
    for _ in range(7):
        process = processes.Process(target=perform_elsewhere, args=(str(study_file), str(out)))
        process.start()
        files += chance.randint(1, 6)  # how many there may be before it is killed
        pause = chance.random() * 0.02
        while process.is_alive() and len(list(out.rglob("*"))) < files:
            time.sleep(0.001)
        time.sleep(pause)
        if not process.is_alive():
            break
        process.kill()
        process.join()
        kills += 1
    assert kills >= 4
    perform_request(request_study(str(study_file)), out)
    assert contents(out) == contents(whole)
    assert not list(out.rglob(".*partial*"))


def start(study: Path, out: Path) -> subprocess.Popen[bytes]:
    code = "import sys; from attnscope.cli.main import main; sys.argv = ['attnscope', 'run', *sys.argv[1:]]; main()"
    words = [sys.executable, "-c", code, str(study), "--out", str(out)]
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.model
def test_ctrl_c_says_how_to_go_on(study_file: Path, tmp_path: Path) -> None:
    process = start(study_file, tmp_path / "run")
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "manifest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"again with: attnscope run" in errors or b"continue with: attnscope run" in errors
    assert b"Traceback" not in errors
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "stopped"


def test_a_bad_prompt_is_reported_and_does_not_sink_the_others(study_file: Path, tmp_path: Path) -> None:
    bad = '    - {intro: "", question: "Empty"}\n    - {intro: "Long", question: "' + "x" * 600 + '"}\n  chat:'
    study_file.write_text(study_file.read_text().replace("  chat:", bad, 1))
    run = run_study(str(study_file), tmp_path / "run")
    dropped = run.manifest.dropped
    assert {each.prompt for each in dropped} == {3, 4}
    assert any("is empty" in each.reason for each in dropped)
    assert any("at most 512 tokens" in each.reason for each in dropped)
    assert set(run.table("prompts").collect()["prompt"]) == {0, 1, 2}
    with pytest.raises(AttnscopeError, match="strict=True"):
        run_study(str(study_file), tmp_path / "strict", strict=True)


def test_an_answer_the_model_writes_is_a_segment_and_a_query_group(study_file: Path, tmp_path: Path) -> None:
    text = study_file.read_text().replace("  chat:", "  answer: {generate: 5}\n  chat:", 1)
    study_file.write_text(text.replace("[last, all, question]", "[last, all, question, answer]"))
    run = run_study(str(study_file), tmp_path / "run", models=["one"])
    tokens = run.table("tokens").collect()
    answers = tokens.filter(segment="answer").group_by("condition", "prompt").len()
    assert len(answers) == 9
    assert answers["len"].max() <= 5  # type: ignore[operator]
    lens = attnscope.load(str(run.study.models[0].source))
    one = tokens.filter(condition="none", prompt=0)
    prompt = one.filter(pl.col("segment") != "answer")["token_id"].to_list()
    assert lens.generate_tokens(prompt, 5).ids == one.filter(segment="answer")["token_id"].to_list()


def test_a_folder_with_something_else_in_it_is_left_alone(study_file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(AttnscopeError, match="not a run"):
        run_study(str(study_file), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


@given(st.lists(st.integers(1, 300), max_size=80), st.integers(1, 1000))
def test_batches_hold_every_prompt_once_within_the_budget(lengths: list[int], tokens: int) -> None:
    made = batches(lengths, Budget(tokens))
    assert sorted(number for batch in made for number in batch) == list(range(len(lengths)))
    for batch in made:
        longest = max(lengths[number] for number in batch)
        padded = longest * len(batch)
        assert len(batch) == 1 or padded <= tokens
        assert padded - sum(lengths[number] for number in batch) <= PADDING * padded
