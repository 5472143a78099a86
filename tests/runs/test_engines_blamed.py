"""What an engine does wrong is said of the engine, and leaves a folder that any engine can go on with."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnscope.errors import AttnscopeError, PluginError
from attnscope.runs.engines import ENGINES, Job
from attnscope.runs.manifest import read_manifest
from attnscope.runs.store import MeasuredCell, NoRoom, RefusedCell, Results
from attnscope.studies import perform_request, request_study
from tests.runs.test_runs import contents

TIER = "command"


@dataclass
class Odd:
    """An engine of a package. run: what it does with a job."""

    run: Callable[[Job], Any]
    name: str = "odd"
    meaning: str = "x"


@dataclass
class Bench:
    """Runs a small study with engines of our own."""

    study: Path
    folder: Path
    patch: pytest.MonkeyPatch

    def run(self, run: Callable[[Job], Any] | None, folder: str = "run") -> Any:
        """None: with the built-in engine."""
        if run is not None:
            self.patch.setitem(ENGINES.members, "odd", Odd(run))
        request = request_study(str(self.study), models=["one"], engine="local" if run is None else "odd")
        return perform_request(request, self.folder / folder)

    @property
    def shards(self) -> list[Path]:
        return list((self.folder / "run").glob("shards/*"))

    def continues(self) -> None:
        """The built-in engine makes of the folder what it makes of a new one."""
        assert self.run(None).measured + self.run(None).reused >= 9
        self.run(None, "fresh")
        assert contents(self.folder / "run") == contents(self.folder / "fresh")


@pytest.fixture
def bench(study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("attnscope.runs.batches.PADDING", 0.0)  # every length of prompts is a batch of its own
    return Bench(study_file, tmp_path, monkeypatch)


def measure_all(job: Job, change: Callable[[Results], Any] = lambda results: results) -> None:
    for batch in job.batches:
        results = job.measure(batch)
        job.store.write(change(results))
        job.done(batch, results)


def leave(job: Job) -> None:
    raise SystemExit(0)


def swallow(job: Job) -> None:
    with suppress(Exception):
        measure_all(job, lambda results: None)


async def later(job: Job) -> None:
    measure_all(job)


FAILING: dict[str, tuple[Any, str]] = {
    "raises": (lambda job: 1 // 0, "fails with ZeroDivisionError.*its run"),
    "exits": (leave, "fails with SystemExit: 0.*its run"),
    "is no function": (3, "fails with TypeError.*its run"),
    "stores and fails": (lambda job: measure_all(replace(job, done=3)), "fails with TypeError"),
    "measures no batch": (lambda job: job.measure(None), "fails with TypeError"),
    "measures other things": (lambda job: job.measure([(3, 4)]), "fails with TypeError: measure was given something"),
    "reports no batch": (lambda job: job.done(None, {}), "fails with TypeError"),
    "reports no results": (lambda job: job.done(job.batches[0], None), "hands over None"),
    "does nothing": (lambda job: None, r"left (\d+) of \1 batches unmeasured"),
    "forgets the first": (lambda job: measure_all(replace(job, batches=job.batches[1:])), r"left 1 of [2-9] batches"),
    "swallows errors": (swallow, "batches unmeasured"),
    "stores half a batch": (
        lambda job: measure_all(job, lambda results: dict(list(results.items())[1:])),
        "batches unmeasured",
    ),
    "waits for nobody": (later, "batches unmeasured"),
}


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("name", FAILING)
def test_an_engine_that_fails_is_named_and_the_run_can_go_on(name: str, bench: Bench) -> None:
    run, words = FAILING[name]
    with pytest.raises(PluginError, match=f"^the engine 'odd' .*{words}"):
        bench.run(run)
    manifest = read_manifest(bench.folder / "run")
    assert manifest is not None
    assert manifest.status == "stopped"
    assert bench.run(None).dropped == []


def measured(change: Callable[[MeasuredCell], Any]) -> Callable[[Results], Any]:
    """Results with the first cell changed."""

    def changed(results: Results) -> dict[str, Any]:
        (key, first), *others = results.items()
        assert isinstance(first, MeasuredCell)
        return {key: change(first), **dict(others)}

    return changed


def arrays(**changes: Callable[[Any], Any]) -> Callable[[Results], Any]:
    """Results with arrays of the first cell changed, whether or not they still make a record."""

    def change(cell: MeasuredCell) -> MeasuredCell:
        record = replace(cell.record)
        new = {name.replace("_", "."): part(record.arrays.get(name)) for name, part in changes.items()}
        object.__setattr__(record, "arrays", {**record.arrays, **new})
        return replace(cell, record=record)

    return measured(change)


def labels(**changes: Any) -> Callable[[Results], Any]:
    def change(cell: MeasuredCell) -> MeasuredCell:
        record = replace(cell.record)
        for name, value in changes.items():
            object.__setattr__(record, name, value)
        return replace(cell, record=record)

    return measured(change)


def not_a_number(array: Any) -> Any:
    array = array.copy()
    array[0, 0, 0] = np.nan
    return array


WRONG: dict[str, tuple[Callable[[Results], Any], str]] = {
    "nothing": (lambda results: None, "hands over None"),
    "a list": (lambda results: list(results), r"hands over \["),
    "a foreign cell": (lambda results: {**results, "x": RefusedCell("no")}, "a cell 'x', which is in none of its"),
    "None for a cell": (measured(lambda cell: None), "hands over None for a cell"),
    "a dict for a cell": (measured(lambda cell: {"record": 1}), "hands over {'record': 1} for a cell"),
    "a record for a cell": (measured(lambda cell: cell.record), "hands over <?Record.* for a cell"),
    "no reason": (measured(lambda cell: RefusedCell("")), "for the reason ''"),
    "no text as reason": (measured(lambda cell: NoRoom(None)), "for the reason None"),  # type: ignore[arg-type]
    "no record": (measured(lambda cell: MeasuredCell(None)), "stores a record that is None"),  # type: ignore[arg-type]
    "an answer": (measured(lambda cell: replace(cell, answer=[1])), "with an answer that was not asked for"),
    "other layers": (labels(layers=[1, 0]), r"of layers \[1, 0\], not \[0, 1\]"),
    "fewer heads": (measured(lambda cell: replace(cell, record=cell.record.of_heads([0]))), r"of heads \[0\]"),
    "other queries": (labels(queries=["a", "b", "c"]), "of queries"),
    "fewer tokens": (labels(tokens=[]), "of other tokens"),
    "no tokens": (labels(tokens=None), "fails with TypeError"),
    "a measure more": (arrays(more=lambda _: np.zeros(3)), "more, not view"),
    "a list as numbers": (arrays(entropy=lambda array: array.tolist()), r"whose 'entropy' is \["),
    "whole numbers": (arrays(entropy=lambda array: array.astype(int)), "whose 'entropy' is array"),
    "a short array": (arrays(entropy=lambda array: array[:1]), r"whose 'entropy' has the shape \(1, 4, 3\), not \(2, "),
    "numbers per key": (arrays(entropy=lambda array: array[..., None]), "whose 'entropy' has the shape"),
    "NaN": (arrays(received=not_a_number), "whose 'received' is not finite"),
    "views that are not there": (arrays(view=lambda array: array + 7), r"whose views are \[7, 7\]"),
    "views without numbers": (arrays(seen=lambda array: array[:0]), "has the shape"),
}


@pytest.mark.parametrize("name", WRONG)
def test_results_that_are_wrong_are_refused_before_anything_is_written(name: str, bench: Bench) -> None:
    change, words = WRONG[name]
    with pytest.raises(PluginError, match=f"^the engine 'odd' .*{words}"):
        bench.run(lambda job: measure_all(job, change))
    assert bench.shards == []


def test_a_folder_with_a_refused_engine_can_be_continued(bench: Bench) -> None:
    def last_one_wrong(job: Job) -> None:
        measure_all(replace(job, batches=job.batches[:-1]))
        measure_all(replace(job, batches=job.batches[-1:]), arrays(received=not_a_number))

    with pytest.raises(PluginError, match="not finite"):
        bench.run(last_one_wrong)
    assert len(bench.shards) > 1
    bench.continues()


def test_a_cell_that_is_stored_stays_as_it_is(bench: Bench) -> None:
    def twice(job: Job) -> None:
        measure_all(job)
        measure_all(job, arrays(entropy=lambda array: array + 1))

    bench.run(twice)
    bench.continues()


def test_done_may_be_left_out(bench: Bench) -> None:
    assert bench.run(lambda job: measure_all(replace(job, done=lambda *_: None))).measured == 9
    bench.continues()


@pytest.mark.parametrize("way", ["write", "done", "both", "later"])
def test_cells_that_did_not_fit_are_dropped_however_they_are_reported(way: str, bench: Bench) -> None:
    def run(job: Job) -> None:
        first, *others = job.batches
        full = {key: NoRoom("no room at all") for _, key in first}
        if way != "done":
            job.store.write(full)
        if way in ("done", "both"):
            job.done(first, full)
        measure_all(replace(job, batches=job.batches if way == "later" else others))

    outcome = bench.run(run)
    assert outcome.measured + len(outcome.dropped) == 9
    assert {each.reason for each in outcome.dropped} == ({"no room at all"} if way != "later" else set())


class OwnError(RuntimeError):
    """A bug of attnscope, or a model's own error."""


def wrapped(job: Job) -> None:
    try:
        measure_all(job)
    except OwnError as error:
        raise ValueError("a worker failed") from error


def elsewhere(job: Job) -> None:
    """As from another process: a copy of the error arrives."""
    try:
        measure_all(job)
    except OwnError as error:
        arrived = pickle.loads(pickle.dumps(error))  # noqa: S301
    raise arrived


@pytest.mark.parametrize("run", [measure_all, wrapped, elsewhere])
@pytest.mark.parametrize("place", ["attnscope.runs.measuring.measure_cells", "attnscope.runs.store.shard_bytes"])
def test_an_error_that_came_out_of_attnscope_is_not_the_engines(run: Any, place: str, bench: Bench) -> None:
    def fail(*_: Any) -> None:
        raise OwnError("own")

    bench.patch.setattr(place, fail)
    with pytest.raises(OwnError, match="own"):
        bench.run(run)


def test_an_engine_is_blamed_for_its_own_error_after_it_has_handled_another(bench: Bench) -> None:
    def run(job: Job) -> None:
        bench.patch.setattr("attnscope.runs.measuring.measure_cells", None)
        try:
            measure_all(job)
        except TypeError:
            bench.patch.undo()
        bench.patch.setitem(ENGINES.members, "odd", Odd(run))
        raise KeyError("mine")

    with pytest.raises(PluginError, match="the engine 'odd' fails with KeyError: 'mine'"):
        bench.run(run)


def test_an_error_arrives_whole_from_another_process() -> None:
    for kind in (AttnscopeError, PluginError):
        error = kind("what", where=("a ", "b"), allowed="c", todo="d")
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(again) is kind
        assert (str(again), again.where) == (str(error), "a b")
