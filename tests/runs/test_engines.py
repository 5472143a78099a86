"""Engines: batches are planned before an engine gets them, so any engine stores the same shards."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from attnscope.errors import AttnscopeError
from attnscope.runs.engines import ENGINES, Batch, Engine, Job
from attnscope.runs.manifest import read_manifest
from attnscope.runs.measuring import CellMeasurer
from attnscope.studies import perform_request, request_study
from tests.cli.conftest import Run as Command
from tests.runs.test_runs import SMALL_BATCHES, contents


@dataclass
class Backwards:
    """Sends the measurer away and takes the last batch first, as a busy cluster might."""

    name: str = "backwards"
    meaning: str = "The last batch first."
    seen: list[Batch] = field(default_factory=list)

    def run(self, job: Job) -> None:
        assert isinstance(job.measure, CellMeasurer)
        assert job.measure.lens is not None
        elsewhere = pickle.loads(pickle.dumps(job.measure))  # noqa: S301
        assert elsewhere.lens is None
        for batch in reversed(job.batches):
            results = elsewhere(pickle.loads(pickle.dumps(batch)))  # noqa: S301
            job.store.write(results)
            job.done(batch, results)
            self.seen.append(batch)


ENGINE = Backwards()


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backwards]:
    """An installed package's engine."""
    entry = EntryPoint("backwards", f"{__name__}:ENGINE", "attnscope.engines")
    monkeypatch.setattr(
        "attnscope.registry.entry_points", lambda group: [entry] if group == "attnscope.engines" else []
    )
    monkeypatch.delitem(ENGINES.__dict__, "_every", raising=False)
    monkeypatch.setattr(ENGINE, "seen", [])
    yield ENGINE
    ENGINES.__dict__.pop("_every", None)


def test_another_engine_stores_the_same_bytes(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: Backwards
) -> None:
    monkeypatch.setitem(__import__("attnscope.runs.batches", fromlist=["ENOUGH"]).ENOUGH, "cpu", SMALL_BATCHES["cpu"])
    perform_request(request_study(str(study_file)), tmp_path / "local")
    outcome = perform_request(request_study(str(study_file), engine="backwards"), tmp_path / "backwards")
    assert len(backwards.seen) > 4
    assert outcome.measured == 18
    assert contents(tmp_path / "backwards") == contents(tmp_path / "local")
    for name in ("local", "backwards"):
        manifest = read_manifest(tmp_path / name)
        assert manifest is not None
        assert manifest.engine == name


def test_the_built_in_engine_is_local() -> None:
    assert isinstance(ENGINES.find("local", "here"), Engine)


def test_an_unknown_engine_is_refused_before_the_folder_is_made(study_file: Path, tmp_path: Path, run: Command) -> None:
    with pytest.raises(AttnscopeError, match=r"unknown engine 'locl'.*near: local"):
        perform_request(request_study(str(study_file), engine="locl"), tmp_path / "run")
    outcome = run("run", study_file, "--out", tmp_path / "run", "--engine", "slrm")
    outcome.refuses("unknown engine 'slrm'", "local")
    assert not (tmp_path / "run").exists()
