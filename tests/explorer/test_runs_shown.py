"""Runs that are still being measured, runs that change while you look at them, and prompts typed in the browser."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

import attnscope
from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.explorer.app import make_app
from attnscope.explorer.live import TrialQueue
from attnscope.explorer.runs import ServedRuns
from attnscope.runs.batches import Budget
from attnscope.runs.watcher import Silent
from attnscope.studies import perform_request, request_study
from tests.cli.conftest import Run as Command
from tests.explorer.conftest import Watched, free_port, serving
from tests.handmade import sealed
from tests.tolerances import SHALLOW

TIER = "command"


class Halting(Silent):
    """Pauses in the middle of a run until it is released."""

    def __init__(self, after: int) -> None:
        self.after, self.ticks = after, 0
        self.halted, self.go = threading.Event(), threading.Event()

    def advance(self, tokens: int) -> None:
        self.ticks += 1
        if self.ticks == self.after:
            self.halted.set()
            assert self.go.wait(300)


@pytest.fixture
def running(explored: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Halting, Any]]:
    """A run that has measured a few of its batches, one cell each."""
    monkeypatch.setattr("attnscope.runs.perform.memory_budget", lambda *_: Budget(1))
    monkeypatch.setattr("attnscope.runs.perform.SHOWN_FIRST", 0.0)
    monkeypatch.setattr("attnscope.runs.perform.SHOWN_EVERY", 0.0)
    monkeypatch.setattr("attnscope.runs.perform.SHOWN_SHARE", 1e9)
    request = request_study(str(explored.path / "study.yaml"), models=["one"], evidence="quick")
    watcher, folder = Halting(13), tmp_path / "running"
    worker = threading.Thread(target=perform_request, args=(request, folder, watcher))
    worker.start()
    assert watcher.halted.wait(120)
    yield folder, watcher, worker
    watcher.go.set()
    worker.join(120)


def test_a_run_that_is_being_measured_can_be_browsed(running: Any, explored: Run) -> None:
    folder, watcher, worker = running
    with pytest.raises(AttnscopeError, match="not finished: it is running"):
        Run(folder)
    served = ServedRuns([folder])
    client = TestClient(make_app(served))
    facts = client.get("/api/runs/running").json()
    assert facts["status"] == "running"
    assert "12 cells" in facts["summary"]
    part = {"name": "map", "kind": "heatmap", "measure": "question", "models": ["one"], "conditions": facts_of(facts)}
    drawn = client.post("/api/runs/running/figure", json=part)
    assert drawn.status_code == 200
    shown = Run(folder, unfinished=True)
    there = shown.table("mass").collect()
    keys = ["model", "condition", "prompt", "queries", "layer", "head", "token_class"]
    whole = explored.table("mass").collect().join(there, on=keys, suffix="_then")
    assert len(whole) == len(there) > 0
    np.testing.assert_allclose(whole["mass"].to_numpy(), whole["mass_then"].to_numpy(), atol=SHALLOW)
    for path in ("evidence", "comparisons", "prompts"):
        assert client.get(f"/api/runs/running/{path}").status_code == 200
    watcher.go.set()
    worker.join(120)
    facts = client.get("/api/runs/running").json()
    assert (facts["status"], "27 cells" in facts["summary"]) == ("finished", True)


def facts_of(facts: dict[str, Any]) -> list[str]:
    return [facts["conditions"][0]["name"]]


def test_the_browser_says_that_a_run_goes_on(running: Any, watched: Watched) -> None:
    folder, watcher, worker = running
    with serving(str(folder), "--port", free_port()) as address:
        page = watched.open(address)
        assert "This run is not finished" in page.locator("main").inner_text()
        assert "12 cells" in page.locator("main").inner_text()
        watcher.go.set()
        worker.join(120)
        page.get_by_role("button", name="Refresh").click()
        page.get_by_text("27 cells").wait_for()
        assert "not finished" not in page.locator("main").inner_text()
        watched.check()


def test_a_run_with_nothing_measured_yet_says_so(explored: Run, tmp_path: Path) -> None:
    home = tmp_path / "early"
    shutil.copytree(explored.path, home)
    sealed(home, status="running")
    assert Run(home, unfinished=True).status == "running"
    sealed(home, status="running", tables={})  # those that are there are of an older study
    client = TestClient(make_app(ServedRuns([home])))
    listed = client.get("/api/runs").json()["runs"][0]
    assert "there is nothing to show for this run yet" in listed["problem"]["what"]
    assert client.get("/api/runs/early").status_code == 409


def test_a_run_that_changes_is_opened_again(explored: Run, tmp_path: Path) -> None:
    home = tmp_path / "changing"
    shutil.copytree(explored.path, home)
    served = ServedRuns([home])
    client = TestClient(make_app(served))
    assert client.get("/api/runs/changing").json()["prompts"] == 9
    request = request_study(str(home / "study.yaml"), limit=4, evidence="quick")
    perform_request(request, home)
    assert client.get("/api/runs/changing").json()["prompts"] == 4


def finished(client: TestClient, number: int) -> dict[str, Any]:
    """A trial's status, once it is done or has failed."""
    for _ in range(600):
        status: dict[str, Any] = client.get(f"/api/trials/{number}").json()
        if status["status"] in ("done", "failed"):
            return status
        time.sleep(0.05)
    raise AssertionError(status)


def test_a_tried_prompt_is_measured_as_the_lens_measures_it(
    models: tuple[Path, Path], explored: Run, tmp_path: Path
) -> None:
    served = ServedRuns([explored.path])
    queue = TrialQueue(str(models[0]), served)
    client = TestClient(make_app(served, queue))
    text = "What # is *? <script>"
    asked: dict[str, Any] = {"text": text, "edit": "repeat", "insertion": "/", "tokens": 7, "place": "before"}
    trials = [client.post("/api/trials", json=asked).json(), client.post("/api/trials", json={"text": "Again"}).json()]
    assert [each["id"] for each in trials] == [1, 2]
    for number in (1, 2):
        status = finished(client, number)
        assert status["status"] == "done", status
    lens = attnscope.load(str(models[0]))
    reading = lens.measure(text, layers=[1], heads=[2])
    asked = {"prompt": 0, "model": str(models[0]), "condition": "none", "queries": "last", "layer": 1, "head": 2}
    shown = client.get("/api/runs/try-1/prompt", params=asked).json()
    np.testing.assert_allclose(
        [token["attention"] for token in shown["tokens"]], reading.received[0, 0, 0], atol=SHALLOW
    )
    edited = client.get("/api/runs/try-1/prompt", params={**asked, "condition": "edited"}).json()
    assert sum(token["segment"] == "inserted" for token in edited["tokens"]) == 7
    assert client.get("/api/trials/99").status_code == 409
    assert client.post("/api/trials", json={"text": ""}).status_code == 422
    queue.close()


def test_a_trial_that_fails_says_why_and_the_next_is_measured(models: tuple[Path, Path], explored: Run) -> None:
    served = ServedRuns([explored.path])
    queue = TrialQueue(str(models[0]), served)
    client = TestClient(make_app(served, queue))
    client.post("/api/trials", json={"text": "word " * 2000})
    client.post("/api/trials", json={"text": "short"})
    for number, outcome in ((1, "failed"), (2, "done")):
        status = finished(client, number)
        assert status["status"] == outcome
        if outcome == "failed":
            assert "tokens, more than" in status["problem"]["what"]
    queue.close()


def test_only_the_newest_trials_are_kept_and_later_ones_still_work(
    models: tuple[Path, Path], explored: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnscope.explorer.live.MOST_KEPT", 1)
    served = ServedRuns([explored.path])
    queue = TrialQueue(str(models[0]), served)
    client = TestClient(make_app(served, queue))
    for number in (1, 2, 3):
        client.post("/api/trials", json={"text": f"prompt {number}"})
        assert finished(client, number)["status"] == "done"
    assert served.names == ["explored", "try-3"]
    queue.close()


def test_a_prompt_is_tried_in_the_browser(models: tuple[Path, Path], explored: Run, watched: Watched) -> None:
    with serving(str(explored.path), "--live", str(models[0]), "--port", free_port()) as address:
        page = watched.open(f"{address}try")
        page.get_by_role("textbox", name="The prompt").fill("What # is *?")
        page.get_by_role("textbox", name="What").fill("/")
        page.get_by_role("button", name="Measure").click()
        page.wait_for_url("**/try-1/prompt/0**", timeout=120_000)
        page.locator(".segment.inserted .token").first.wait_for()
        assert page.locator(".segment.inserted .token").count() == 20
        watched.check()


def test_without_live_nothing_can_be_tried(server: str, watched: Watched) -> None:
    page = watched.open(f"{server}/try")
    assert "--live MODEL" in page.locator("main").inner_text()
    assert not page.locator("textarea").count()
    assert page.request.post(f"{server}/api/trials", data={"text": "x"}).status == 404


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "there is no run here"),
        (["{run}", "--live", "nosuchmodel"], "nosuchmodel"),
        (["{run}", "--port", "99999"], "less than or equal to 65535"),
        (["{run}", "--host", "192.0.2.1"], "can't listen there"),
        ([], "Missing argument"),
    ],
)
def test_what_cant_be_served_is_refused(run: Command, explored: Run, words: list[str], message: str) -> None:
    run("serve", *(word.format(run=explored.path) for word in words)).refuses(message)


def test_a_folder_of_runs_stands_for_its_runs(explored: Run, tmp_path: Path) -> None:
    from attnscope.explorer.serve import runs_in

    for name in ("b", "a"):
        shutil.copytree(explored.path, tmp_path / name)
    (tmp_path / "no run").mkdir()
    assert runs_in(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert runs_in(explored.path) == [explored.path]


def test_a_port_that_is_taken_is_refused(run: Command, explored: Run, server: str) -> None:
    port = server.rpartition(":")[2]
    run("serve", explored.path, "--port", port).refuses("can't listen there", "--port")


def test_a_token_of_100000_characters_is_shown_cut_and_never_run(
    explored: Run, tmp_path: Path, watched: Watched
) -> None:
    home = tmp_path / "huge"
    shutil.copytree(explored.path, home)
    tokens = pl.read_parquet(home / "tokens.parquet").with_columns(pl.col("text").cast(pl.String))
    huge = "<script>pwned=1</script>" * 4167
    first = pl.when(pl.col("position") == 0).then(pl.lit(huge)).otherwise(pl.col("text"))
    tokens.with_columns(text=first).write_parquet(home / "tokens.parquet")
    sealed(home)
    with serving(str(home), "--port", free_port()) as address:
        page = watched.open(f"{address}huge/prompt/1?beside=condition:filler")
        text = page.locator(".token").first.inner_text()
        assert text.startswith("<script>pwned=1</script>")
        assert text.endswith("… (100,008 characters)")
        assert len(text) < 500
        widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1]
        page.locator(".token").first.hover()
        watched.check()
