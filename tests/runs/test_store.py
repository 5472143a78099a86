"""The store: shards named by their content, with labelled axes; every kind of measure finds its way to the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from attnscope.analysis.head_values import head_values
from attnscope.analysis.measures import measure_values
from attnscope.analysis.sides import Side, masses
from attnscope.errors import AttnscopeError
from attnscope.records import Record
from attnscope.runs.columns import EXPORTS
from attnscope.runs.integrity import sha256
from attnscope.runs.measuring import measure_cells
from attnscope.runs.shards import CellReader
from attnscope.runs.store import MeasuredCell, NoRoom, RefusedCell, Store, shard_bytes
from attnscope.studies import perform_request, request_study, run_study
from attnscope.text.tokens import Token
from tests.handmade import exported

TIER = "command"


def record(seed: int = 0, keys: int = 5) -> Record:
    chance = np.random.default_rng(seed)
    weights = chance.random((2, 3, 1, keys), dtype=np.float32)
    tokens = [Token(place, place, "a", place, place + 1) for place in range(keys)]
    arrays: dict[str, NDArray[Any]] = {
        "received": weights / weights.sum(-1, keepdims=True),
        "view": np.zeros(2, dtype=np.int32),
        "seen": np.ones((1, 1, 1, keys), dtype=np.float32),
        "received.uniform": np.full((1, 1, 1, keys), 1 / keys, dtype=np.float32),
        "entropy": chance.random((2, 3, 1), dtype=np.float32),
        "entropy.uniform": np.full((1, 1, 1), np.log(keys), dtype=np.float32),
    }
    return Record("a" * keys, tokens, [4, 1], [0, 2, 7], ["last"], arrays)


def test_a_shard_is_named_by_its_bytes_and_says_what_its_axes_are(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(
        {"first": MeasuredCell(record(1), answer=[3, 4]), "second": RefusedCell("too odd"), "third": NoRoom("later")}
    )
    (path,) = (tmp_path / "shards").iterdir()
    assert path.stem == sha256(path.read_bytes())
    with safe_open(path, framework="numpy") as shard:
        content = json.loads(shard.metadata()["attnscope"])
        names = set(shard.keys())
    assert content["axes"]["received"] == ["layer", "head", "queries", "key"]
    assert content["axes"]["received.uniform"] == ["view", "head", "queries", "key"]
    assert content["axes"]["entropy"] == ["layer", "head", "queries"]
    of_first = {"queries": [["last"]], "queries_of": {"first": 0}}
    assert content["labels"] == {"layer": [4, 1], "head": [0, 2, 7], **of_first}
    assert names == {f"first/{name}" for name in (*record().arrays, "answer")} | {"second/refused"}
    again = Store(tmp_path)
    assert "first" in again
    assert "third" not in again
    assert (again.answer("first"), again.refusal("second"), again.refusal("first")) == ([3, 4], "too odd", None)


def test_the_same_results_are_the_same_bytes() -> None:
    results = {"one": MeasuredCell(record(1)), "two": MeasuredCell(record(2, keys=9))}
    assert shard_bytes(results) == shard_bytes({"one": MeasuredCell(record(1)), "two": MeasuredCell(record(2, keys=9))})
    assert shard_bytes(results) != shard_bytes({"one": MeasuredCell(record(1)), "two": MeasuredCell(record(3, keys=9))})


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    store, written = Store(tmp_path), record(5)
    store.write({"cell": MeasuredCell(written), "other": MeasuredCell(record(6))})
    reader = CellReader(tmp_path, store.facts(["cell"]))
    for name, array in reader.arrays("cell").items():
        np.testing.assert_array_equal(array, written.arrays[name])
    labels = reader.shard("cell").labels("cell")
    part = reader.lazy_array("cell", "received")[labels.layers.index(1), labels.heads.index(7)]
    np.testing.assert_array_equal(part[0], written.received.at(layer=1, head=7, queries="last").values)
    with pytest.raises(AttnscopeError, match="cell nowhere is in no shard"):
        reader.shard("nowhere")


def with_top1(*asked: Any) -> list[Record]:
    """What is measured, and a measure with one number per key that the lens does not know yet: the last key has all."""
    made = []
    for each in measure_cells(*asked):
        top = np.zeros_like(each.arrays["received"])
        top[..., -1] = 1
        more = {"top1": top, "top1.uniform": each.arrays["received.uniform"]}
        distance = np.broadcast_to(np.asarray(each.heads, dtype=np.float32)[:, None], each.received.shape[:3])
        more |= {"distance": distance, "distance.uniform": np.zeros((len(each.arrays["seen"]), 1, distance.shape[2]))}
        made.append(replace(each, arrays={**each.arrays, **more}))
    return made


def test_every_measure_is_in_the_tables_by_name(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnscope.runs.measuring.measure_cells", with_top1)
    study_file.write_text(study_file.read_text().replace("measures: [entropy]", "measures: [top1, entropy, distance]"))
    run = run_study(str(study_file), tmp_path / "run", models=["one"])
    last = run.table("tokens").filter(pl.col("position") == pl.col("position").max().over("condition", "prompt"))
    assert set(last.collect()["segment"]) == {"template"}
    for queries in run.queries:
        plain, top = (masses(run, "one", "none", queries, each) for each in ("received", "top1"))
        np.testing.assert_array_equal(top.of(["space"])[0], 1)  # a prompt ends with a line end
        np.testing.assert_array_equal(top.expected, plain.expected)
        assert plain.of(["space"])[0].max() < 1
    far = head_values(run, "one", "none", "all", "distance")
    np.testing.assert_array_equal(far.value, np.broadcast_to(np.arange(4.0), far.value.shape))
    np.testing.assert_array_equal(far.defined, 1)
    mapped = measure_values(Side(run, "one", "none"), "all", ["distance"], enrichment=False, where="here")
    np.testing.assert_array_equal(mapped.values, far.value)
    assert set(run.table("heads").collect()["measure"]) == {"entropy", "distance"}
    with pytest.raises(AttnscopeError, match="no class or measure 'concentration' in this run"):
        measure_values(Side(run, "one", "none"), "all", ["concentration"], enrichment=False, where="here")


def test_the_large_arrays_are_exported_as_they_were_measured(study_file: Path, tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run", models=["one"])
    received, views = exported(run), exported(run, "views")
    assert received.columns == [column.name for column in EXPORTS["received"]]
    assert views.columns == [column.name for column in EXPORTS["views"]]
    assert len(received) == 9 * 3 * 2 * 4
    where = {"condition": "filler", "prompt": 1, "queries": "all"}
    row = received.filter(layer=1, head=2, **where)
    cell = run.table("prompts").filter(condition="filler", prompt=1).collect()["cell"][0]
    shard = run.cells.shard(cell)
    place = shard.labels(cell).queries.index("all")
    np.testing.assert_array_equal(row["received"][0].to_numpy(), shard.array(cell, "received")[1, 2, place])
    assert row["entropy"][0] == shard.array(cell, "entropy")[1, 2, place]
    view = views.filter(view=row["view"][0], **where)
    np.testing.assert_array_equal(view["seen"][0].to_numpy(), shard.array(cell, "seen")[row["view"][0], 0, place])
    path = run.export("views")
    assert path == run.path / "exports" / "views.parquet"
    perform_request(request_study(str(study_file)), run.path)
    assert not path.exists()  # of other tables than the run has now
    with pytest.raises(AttnscopeError, match=r"no table 'mass' to export.*Parquet already"):
        run.export("mass")
    with pytest.raises(AttnscopeError, match="can't write the table"):
        run.export("received", tmp_path / "no" / "folder" / "here.parquet")
