"""What pages show of runs with unusual shapes, and their numbers checked against the tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

from attnscope.analysis.cache import FOLDER
from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import Comparison
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.explorer.app import make_app
from attnscope.explorer.runs import ServedRuns
from attnscope.explorer.views.choices import HeadChoice
from attnscope.explorer.views.compare import HeadSide, pair
from attnscope.explorer.views.head import head_facts
from attnscope.explorer.views.prompt import PromptChoice, prompt_text
from attnscope.figures.validation import options_of
from attnscope.figures.write import make_figure
from attnscope.runs.columns import TABLES
from attnscope.study.schema import FigureSpec
from tests.analysis.conftest import performed, study
from tests.handmade import exported, sealed
from tests.models import tiny
from tests.runs.conftest import CHAT
from tests.tolerances import SUMMED

TIER = "command"


@pytest.fixture(scope="module")
def uneven(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two models of different depth and width, one condition, one class fewer than usual."""
    home = tmp_path_factory.mktemp("uneven")
    config = tiny.llama_config(max_position_embeddings=512, initializer_range=0.3, num_hidden_layers=4)
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 2, 2, 8
    tiny.save_model(home / "deep", config, seed=4)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(home / "deep")
    sources = [{"label": "wide", "source": str(models[0])}, {"label": "deep", "source": str(home / "deep")}]
    return performed(study(sources, conditions=["none"]), home, "uneven")


@pytest.fixture(scope="module")
def lone(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One model, one condition, one prompt, no classes."""
    told = study(
        [{"label": "one", "source": str(models[0])}],
        prompts={"items": [{"text": "Only one prompt."}], "plain": "{text}"},
        conditions=["none"],
        classes={},
    )
    return performed(told, tmp_path_factory.mktemp("lone"), "lone")


def answered(run: Run, parts: list[dict[str, Any]]) -> TestClient:
    client = TestClient(make_app(ServedRuns([run.path])))
    for part in parts:
        answer = client.post(f"/api/runs/{run.path.name}/figure", json={"name": "x", **part}, params={"width": 700})
        assert answer.status_code == 200, (part, answer.text)
    return client


def sides(left: tuple[str, int, int], right: tuple[str, int, int]) -> dict[str, Any]:
    """A pair of heads under the base prompt, as a request has them."""
    made: dict[str, Any] = {}
    for side, (model, layer, head) in (("left", left), ("right", right)):
        place = {"model": model, "condition": "none", "layer": layer, "head": head}
        made |= {f"{side}_{key}": value for key, value in place.items()}
    return made


def test_models_of_different_shapes_are_mapped_by_the_first_ones_numbers(uneven: Run) -> None:
    client = answered(
        uneven,
        [
            {"kind": "heatmap", "measure": "question", "models": ["deep"], "conditions": ["none"]},
            {"kind": "lines", "panels": [{"model": "deep", "layer": 3, "head": 1}]},
            {"kind": "bars", "models": ["deep"], "layers": [3], "heads": [1]},
            {"kind": "spread", "models": ["deep"], "layers": [3], "heads": [1], "measure": "sink"},
        ],
    )
    part = {"name": "x", "kind": "heatmap", "measure": "question", "difference": ["wide", "deep"]}
    drawn = client.post("/api/runs/uneven/figure", json=part).json()
    heads = {(row["layer"], row["head"]) for row in drawn["top"]}
    assert heads <= {(layer, head) for layer in uneven.layers("wide") for head in uneven.heads("wide")}
    assert "by behaviour" in drawn["caption"]
    for model, layer, head in (("wide", 1, 3), ("deep", 3, 1)):
        place: dict[str, Any] = {"model": model, "layer": layer, "head": head, "queries": "all"}
        found = client.get("/api/runs/uneven/head", params=place)
        assert found.status_code == 200
        for rank in found.json()["ranks"]:
            assert 1 <= rank["rank"] <= rank["of"] == len(uneven.layers(model)) * len(uneven.heads(model))
    wrong = client.get("/api/runs/uneven/head", params={"model": "wide", "layer": 3, "head": 0, "queries": "all"})
    assert wrong.status_code == 409
    both = sides(("wide", 0, 0), ("deep", 3, 1))
    told = client.get("/api/runs/uneven/pair", params={"queries": "last", **both}).json()["facts"]
    assert any("heads with the same number are not the same heads" in fact for fact in told)


def test_a_run_of_one_prompt_without_classes_is_shown(lone: Run) -> None:
    client = answered(
        lone,
        [
            {"kind": "heatmap", "measure": "other"},
            {"kind": "heatmap", "measure": "sink", "sort": "effect"},
            {"kind": "lines", "panels": [{"model": "one", "layer": 0, "head": 0}], "form": "full"},
            {"kind": "bars"},
            {"kind": "spread", "measure": "other"},
            {"kind": "strip", "prompt": 0},
        ],
    )
    facts = client.get("/api/runs/lone").json()
    assert facts["measures"][0]["name"] == "other"
    assert facts["figures"] == []
    assert client.get("/api/runs/lone/comparisons").json() == []
    assert client.get("/api/runs/lone/evidence").status_code == 200
    both = sides(("one", 0, 0), ("one", 0, 0))
    rows = client.get("/api/runs/lone/pair", params={"queries": "last", **both}).json()["rows"]
    assert [row["difference"] for row in rows] == [0.0]


def test_a_model_without_a_prompt_under_a_condition_says_so(explored: Run, tmp_path: Path) -> None:
    """As while a run is measured: longest first, so the base prompt comes last."""
    home = tmp_path / "part"
    shutil.copytree(explored.path, home)
    shutil.rmtree(home / FOLDER)
    for name in TABLES:
        frame = pl.read_parquet(home / f"{name}.parquet")
        there = (pl.col("model") == "one") | (pl.col("condition") == "filler")
        frame.filter(there).write_parquet(home / f"{name}.parquet")
    sealed(home)
    client = TestClient(make_app(ServedRuns([home])), raise_server_exceptions=False)
    facts = client.get("/api/runs/part").json()
    assert [model["conditions"] for model in facts["models"]] == [["none", "filler", "sentence"], ["filler"]]
    for kind in ("heatmap", "bars", "spread", "strip"):
        one = {"name": "x", "kind": kind, "models": ["two"], "conditions": ["none"]}
        answer = client.post("/api/runs/part/figure", json=one)
        assert (answer.status_code, answer.json()["what"]) == (409, "two has no prompt under none")
    part: dict[str, Any] = {
        "name": "x",
        "kind": "heatmap",
        "models": ["two"],
        "difference": ["none", "filler"],
        "measure": "question",
    }
    assert client.post("/api/runs/part/figure", json=part).status_code == 409
    part = {"name": "x", "kind": "lines", "panels": [{"model": "two", "layer": 0, "head": 0}]}
    assert client.post("/api/runs/part/figure", json=part).status_code == 409
    assert client.post("/api/runs/part/figure", json={**part, "conditions": ["filler"]}).status_code == 200
    for path in ("comparisons", "evidence"):
        assert client.get(f"/api/runs/part/{path}").status_code == 200
    place: dict[str, Any] = {"model": "two", "layer": 0, "head": 0, "queries": "last"}
    assert client.get("/api/runs/part/head", params=place).status_code == 200


@pytest.mark.parametrize("name", ["prompts", "mass", "tokens"])
def test_a_damaged_run_says_so_and_the_others_are_shown(explored: Run, tmp_path: Path, name: str) -> None:
    home = tmp_path / "damaged"
    shutil.copytree(explored.path, home)
    shutil.rmtree(home / FOLDER)
    held = (home / f"{name}.parquet").read_bytes()
    (home / f"{name}.parquet").write_bytes(held[: len(held) // 2])
    client = TestClient(make_app(ServedRuns([explored.path, home])), raise_server_exceptions=False)
    assert [run["name"] for run in client.get("/api/runs").json()["runs"]] == ["explored", "damaged"]
    asked: dict[str, Any] = {"prompt": 0, "model": "one", "condition": "none", "queries": "last"}
    answers = [client.get("/api/runs/damaged"), client.get("/api/runs/damaged/prompt", params=asked)]
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert any(f"table '{name}' was changed or damaged" in answer.text for answer in answers)


def test_what_one_side_has_none_of_is_not_tested(explored: Run) -> None:
    place = HeadChoice("one", 1, 2, "last")
    rows = {row.token_class: row for row in pair(explored, HeadSide(place, "none"), HeadSide(place, "filler")).rows}
    assert rows["inserted"].difference is not None
    assert (rows["inserted"].q, rows["inserted"].significant) == (None, None)
    assert rows["question"].q is not None
    everywhere = HeadChoice("one", 1, 2, "all")
    for row in pair(explored, HeadSide(everywhere, "none"), HeadSide(everywhere, "filler")).rows:
        assert row.q is None  # inserted tokens are queries too
    same = pair(explored, HeadSide(place, "none"), HeadSide(place, "none"))
    assert not any(row.significant for row in same.rows)


def test_a_difference_has_the_same_q_as_in_the_comparisons_and_on_the_map(explored: Run) -> None:
    place = HeadChoice("one", 1, 2, "last")
    shown = pair(explored, HeadSide(place, "none"), HeadSide(place, "filler"))
    comparison = Comparison("condition", Side(explored, "one", "none"), Side(explored, "one", "filler"))
    wanted = {"queries": "last", "quantity": "mass", "layer": 1, "head": 2}
    rows = {row["token_class"]: row for row in compare(comparison).heads.filter(**wanted).iter_rows(named=True)}
    assert [row.token_class for row in shown.rows] == list(rows)
    for row in shown.rows:
        known = rows[row.token_class]
        assert (row.difference, row.q, row.significant) == (known["difference"], known["q"], known["sure"])
    spec = {"name": "map", "kind": "heatmap", "measure": "question", "queries": "last", "models": ["one"]}
    spec["difference"] = ["none", "filler"]
    cells = make_figure(explored, options_of(FigureSpec.model_validate(spec))).table
    assert cells.filter(layer=1, head=2)["q"].to_list() == [rows["question"]["q"]]
    assert any("among all heads and classes" in fact for fact in shown.facts)
    turned = pair(explored, HeadSide(place, "filler"), HeadSide(place, "none"))
    by_name = {row.token_class: row for row in turned.rows}
    for row in shown.rows:
        other = by_name[row.token_class]
        assert other.difference == pytest.approx(-(row.difference or 0))
        assert other.q == row.q
        assert (other.left, other.right) == (row.right, row.left)
        assert row.low is None or (other.low, other.high) == pytest.approx((-(row.high or 0), -row.low))


def test_heads_that_the_run_does_not_pair_are_tested_among_their_classes(explored: Run) -> None:
    left, right = HeadChoice("one", 1, 2, "last"), HeadChoice("one", 0, 1, "last")
    shown = pair(explored, HeadSide(left, "none"), HeadSide(right, "none"))
    assert any("among the classes of this pair" in fact for fact in shown.facts)
    for row in shown.rows:
        assert row.low is None or -1 <= row.low <= (row.high or 0) <= 1


def test_models_are_compared_the_same_way_round_as_in_the_run(explored: Run) -> None:
    place, other = HeadChoice("one", 1, 2, "last"), HeadChoice("two", 1, 2, "last")
    there = pair(explored, HeadSide(place, "none"), HeadSide(other, "none"))
    back = pair(explored, HeadSide(other, "none"), HeadSide(place, "none"))
    assert [row.q for row in there.rows] == [row.q for row in back.rows]
    for row, turned in zip(there.rows, back.rows, strict=True):
        assert (row.left, row.right) == (turned.right, turned.left)
        assert (row.difference or 0) == -(turned.difference or 0)


def test_changes_of_a_head_are_those_of_the_tables(explored: Run) -> None:
    found = head_facts(explored, HeadChoice("one", 1, 2, "last"))
    told = {rank.what: rank for rank in found.changes}
    held = explored.table("mass").filter(model="one", queries="last", layer=1, head=2).collect()
    for name in ("question", "marks"):
        mine = held.filter(token_class=name).sort("prompt")
        apart = mine.filter(condition="filler")["mass"].to_numpy() - mine.filter(condition="none")["mass"].to_numpy()
        assert told[f"{name}: filler minus none, one"].value == pytest.approx(apart.mean())
    assert told["question: two minus one, none"].of == 8


def test_tokens_that_two_models_share_have_the_same_key(explored: Run) -> None:
    texts = [
        prompt_text(explored, PromptChoice(3, model, condition, "last"))
        for model, condition in (("one", "none"), ("one", "filler"), ("two", "none"))
    ]
    shared = [{token.shared: token.text for token in text.tokens if token.shared} for text in texts]
    assert shared[0] == shared[2]  # the same tokenizer
    assert shared[0] == shared[1]  # all but what was inserted
    assert all(token.shared is None for token in texts[1].tokens if token.segment == "inserted")
    received = [token.attention or 0 for token in texts[0].tokens]
    rows = exported(explored).filter(model="one", condition="none", prompt=3, queries="last")
    np.testing.assert_allclose(received, np.mean([each.to_numpy() for each in rows["received"]], 0), rtol=SUMMED)


def test_runs_of_the_same_folder_name_have_names_of_their_own(explored: Run, tmp_path: Path) -> None:
    for home in ("a", "b"):
        (tmp_path / home / "same").mkdir(parents=True)
    (tmp_path / "try").mkdir()
    paths = [tmp_path / "a" / "same", tmp_path / "b" / "same", tmp_path / "a" / "same", tmp_path / "try"]
    served = ServedRuns(paths)
    assert served.names == ["same", "same-2", "try-run"]
    assert served.add("same", tmp_path) == "same-3"


def test_a_class_without_a_token_says_so(lone: Run, models: tuple[Path, Path], tmp_path: Path) -> None:
    told = study([{"label": "one", "source": str(models[0])}], classes={"roman": "re:[ↀ-ↈ]"}, conditions=["none"])
    run = performed(told, tmp_path, "empty")
    client = TestClient(make_app(ServedRuns([run.path])))
    part = {"name": "x", "kind": "heatmap", "measure": "roman"}
    for value in ("mass", "enrichment"):
        answer = client.post("/api/runs/empty/figure", json={**part, "value": value})
        assert (answer.status_code, answer.json()["what"]) == (409, "no prompt can show roman")
    facts = head_facts(run, HeadChoice("one", 0, 0, "last"))
    assert [rank.what for rank in facts.ranks] == ["other, none"]


def test_a_character_of_several_tokens_is_shown_once(models: tuple[Path, Path], tmp_path: Path) -> None:
    told = study(
        [{"label": "one", "source": str(models[0])}],
        prompts={"items": [{"text": "A 🐱 and 🐶🐱."}], "plain": "{text}"},
        conditions=["none"],
        classes={},
    )
    run = performed(told, tmp_path, "cats")
    text = prompt_text(run, PromptChoice(0, "one", "none", "last"))
    assert "".join(token.text for token in text.tokens if token.text != "·") == "A 🐱 and 🐶🐱."
    assert sum(token.text == "·" for token in text.tokens) > 0
    strip = client_figure(run, {"name": "x", "kind": "strip", "prompt": 0})
    assert strip.count("🐱") <= 4 * 2  # in the rows and as they are drawn, not once a byte


def client_figure(run: Run, part: dict[str, Any]) -> str:
    answer = TestClient(make_app(ServedRuns([run.path]))).post(f"/api/runs/{run.path.name}/figure", json=part)
    return json.dumps(answer.json()["chart"]["datasets"], ensure_ascii=False)


def test_the_caption_of_a_map_names_what_is_measured_which_need_not_be_attention(explored: Run) -> None:
    parts = [
        {"name": "map", "kind": "heatmap", "measure": each, "difference": ["none", "filler"]}
        for each in ("entropy", "question")
    ]
    captions = [make_figure(explored, options_of(FigureSpec(**each))).look.caption for each in parts]
    assert captions[0].startswith("Change in entropy (nats), measured from the last token, mean over n = ")
    assert captions[1].startswith("Change in attention from the last token, mean over n = ")


def test_heads_of_two_models_without_a_class_have_no_difference_in_it(explored: Run) -> None:
    """Nothing is inserted into the base prompt, so that the class exists on neither side."""
    client = TestClient(make_app(ServedRuns([explored.path])))
    places: dict[str, list[Any]] = {"layer": [1, 1], "head": [3, 0], "model": ["one", "two"]}
    asked = {
        f"{side}_{key}": each[number] for number, side in enumerate(("left", "right")) for key, each in places.items()
    }
    both = {**asked, "left_condition": "none", "right_condition": "none"}
    for params in (both, {**both, "right_head": 3}):
        rows = client.get("/api/runs/explored/pair", params={"queries": "last", **params})
        assert rows.status_code == 200
        missing = [row for row in rows.json()["rows"] if row["difference"] is None]
        assert all(row["q"] is None for row in missing)
