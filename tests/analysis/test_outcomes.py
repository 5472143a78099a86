"""Outcomes of interventions: read by key, refused where they can't be right, and effects of known size are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from attnscope.analysis.intervention_effects import EFFECTS, intervention_effects
from attnscope.analysis.outcomes import Place, outcomes, sides_with_outcomes
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.errors import AttnscopeError
from tests.analysis.conftest import performed, study
from tests.analysis.planted import CHANGES, HIDE, INTERVENTIONS, PLACEBO, PROMPTS, Row, outcome_rows, swept
from tests.handmade import with_outcomes

TIER = "command"


def made(measured: Run, home: Path, rows: list[Row], **outcome: Any) -> Run:
    return with_outcomes(measured, home / "made", INTERVENTIONS, rows, outcome)


def effect(table: pl.DataFrame, intervention: str, kind: str) -> dict[str, Any]:
    return table.filter(intervention=intervention, kind=kind).row(0, named=True)


def test_planted_effects_are_found_and_what_is_not_there_is_not(measured: Run, tmp_path: Path) -> None:
    table = intervention_effects(made(measured, tmp_path, outcome_rows(PROMPTS), margin=0.5), "logprob")
    assert dict(table.schema) == EFFECTS
    used, ignored = effect(table, "used", "beyond"), effect(table, "ignored", "beyond")
    assert used["against"] == "used (control)"
    assert used["low"] < -1.1 < used["high"]
    assert used["q"] < 0.001
    assert used["same_q"] > 0.05
    assert ignored["low"] < 0 < ignored["high"]
    assert ignored["q"] > 0.05
    assert ignored["same_q"] < 0.05
    change = effect(table, "used", "change")
    assert change["low"] < CHANGES["used"] < change["high"]
    assert change["against"] == "none"
    placebo = effect(table, "used (control)", "placebo")
    assert placebo["against"] == PLACEBO.format("used")
    assert placebo["q"] > 0.05
    assert set(table["n"]) == {40}


def test_a_second_draw_is_only_there_for_the_placebo(measured: Run, tmp_path: Path) -> None:
    table = intervention_effects(made(measured, tmp_path, outcome_rows(PROMPTS)), "logprob")
    again = table.filter(intervention=PLACEBO.format("used"))
    assert again["kind"].to_list() == ["change"]
    assert again["q"].to_list() == [None]


def test_rows_in_any_order_give_the_same_effects(measured: Run, tmp_path: Path) -> None:
    rows = outcome_rows(PROMPTS)
    order = np.random.default_rng(3).permutation(len(rows))
    shuffled = [rows[place] for place in order]
    one = intervention_effects(made(measured, tmp_path / "a", rows), "logprob")
    assert intervention_effects(made(measured, tmp_path / "b", shuffled), "logprob").equals(one)


def test_prompts_that_an_intervention_cannot_be_made_in_are_left_out_of_its_own_numbers(
    measured: Run, tmp_path: Path
) -> None:
    rows = [row for row in outcome_rows(PROMPTS) if row["intervention"] != "used" or row["prompt"] >= 10]
    table = intervention_effects(made(measured, tmp_path, rows), "logprob")
    for kind, n in (("change", 30), ("beyond", 30)):
        assert effect(table, "used", kind)["n"] == n
    assert effect(table, "used (control)", "change")["n"] == 40
    kept = [row["logprob"] for row in rows if row["intervention"] == "used"]
    start = [row["logprob"] for row in rows if row["intervention"] == "none" and row["prompt"] >= 10]
    assert effect(table, "used", "change")["effect"] == pytest.approx(np.mean(kept) - np.mean(start))


def without_one_start(rows: list[Row]) -> list[Row]:
    return [row for row in rows if (row["intervention"], row["prompt"]) != ("none", 7)]


def changed(rows: list[Row], **values: Any) -> list[Row]:
    return [{**row, **values} if (row["intervention"], row["prompt"]) == ("used", 7) else row for row in rows]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without_one_start, "it has no row for intervention none, prompt 7"),
        (lambda rows: [*rows, rows[50]], "it has several rows for intervention used, prompt 10"),
        (lambda rows: changed(rows, logprob=float("nan")), "logprob of intervention used, prompt 7 is not a number"),
        (lambda rows: changed(rows, logprob=float("-inf")), "logprob of intervention used, prompt 7 is not a number"),
        (lambda rows: changed(rows, logprob=None), "logprob of intervention used, prompt 7 is not a number"),
        (lambda rows: changed(rows, logprob=0.5), "logprob of intervention used, prompt 7 is not a log probability"),
        (lambda rows: changed(rows, kl=-0.5), "kl of intervention used, prompt 7 is not a KL divergence"),
        (lambda rows: changed(rows, kl=float("nan")), "kl of intervention used, prompt 7 is not a number"),
        (lambda rows: changed(rows, exact=None), "exact of intervention used, prompt 7 is missing"),
        (lambda rows: changed(rows, intervention="unknown"), "does not have the intervention of its row for .*unknown"),
        (lambda rows: changed(rows, prompt=99), "does not have the prompt of its row for .*prompt 99"),
        (lambda rows: changed(rows, layer=1), "there is no such place as intervention used, prompt 7, layer 1"),
    ],
)
def test_what_cannot_be_right_is_refused(
    measured: Run, tmp_path: Path, change: Callable[[list[Row]], list[Row]], problem: str
) -> None:
    run = made(measured, tmp_path, change(outcome_rows(PROMPTS)))
    with pytest.raises(AttnscopeError, match=problem):
        intervention_effects(run, "logprob")


def test_choices_decide_accuracy_and_flips(measured: Run, tmp_path: Path) -> None:
    rows = outcome_rows(PROMPTS)
    for row in rows:
        turned = row["intervention"] == "used" and row["prompt"] < 10
        elsewhere = row["intervention"] == "used" and 10 <= row["prompt"] < 15
        wrong = turned or row["prompt"] >= 35
        row |= {"choice": "c" if elsewhere else "b" if wrong else "a", "right": not wrong and not elsewhere}
    run = made(measured, tmp_path, rows, choices=["b", "c"], scores=["accuracy", "flips"])
    accuracy, flips = (effect(intervention_effects(run, score), "used", "change") for score in ("accuracy", "flips"))
    assert accuracy["effect"] == pytest.approx(-15 / 40)
    assert accuracy["q"] < 0.05
    assert -1 <= accuracy["low"] < accuracy["high"] < 0
    assert flips["effect"] == pytest.approx(15 / 40)
    assert flips["q"] is None  # nothing can flip back
    beyond = effect(intervention_effects(run, "flips"), "used", "beyond")
    assert beyond["effect"] == pytest.approx(15 / 40)
    assert beyond["q"] < 0.05
    rows[0]["right"] = None
    with pytest.raises(AttnscopeError, match="right of intervention none, prompt 0 is missing"):
        intervention_effects(made(measured, tmp_path / "again", rows, choices=["b", "c"]), "accuracy")


def test_without_choices_the_written_answer_decides(measured: Run, tmp_path: Path) -> None:
    rows = [{**row, "exact": row["intervention"] != "used" or row["prompt"] >= 8} for row in outcome_rows(PROMPTS)]
    run = made(measured, tmp_path, rows)
    assert effect(intervention_effects(run, "accuracy"), "used", "change")["effect"] == pytest.approx(-0.2)
    assert effect(intervention_effects(run, "flips"), "used", "change")["effect"] == pytest.approx(0.2)


def test_intervals_end_where_values_can_lie(measured: Run, tmp_path: Path) -> None:
    prompts = list(range(6))
    rows = [{**row, "exact": row["intervention"] != "used" or row["prompt"] == 0} for row in outcome_rows(prompts)]
    run = made(measured, tmp_path, rows)
    accuracy, flips, kl = (
        effect(intervention_effects(run, score), "used", "change") for score in ("accuracy", "flips", "kl")
    )
    assert accuracy["low"] == -1
    assert flips["high"] == 1
    assert kl["low"] >= 0
    assert kl["q"] is None
    assert flips["n"] == 6


def test_five_prompts_have_a_mean_and_no_interval(measured: Run, tmp_path: Path) -> None:
    table = intervention_effects(made(measured, tmp_path, outcome_rows(PROMPTS[:5])), "logprob")
    row = effect(table, "used", "beyond")
    assert row["n"] == 5
    assert row["effect"] is not None
    assert [row[name] for name in ("low", "high", "p", "q")] == [None] * 4


def test_where_nothing_has_an_effect_p_is_uniform(measured: Run, tmp_path: Path) -> None:
    names = [f"number {place}" for place in range(200)]
    specs = [{"name": name, "hide": HIDE, "control": "none"} for name in names]
    rows = outcome_rows(PROMPTS, dict.fromkeys(names, 0.0))
    table = intervention_effects(with_outcomes(measured, tmp_path / "made", ["none", *specs], rows), "logprob")
    assert len(table) == 200
    p = table["p"].to_numpy()
    for share in (0.05, 0.25, 0.5, 0.75):
        assert abs((p < share).mean() - share) < 0.12
    assert (table["q"] > 0.05).all()


@pytest.mark.parametrize(
    ("over", "place", "words"),
    [
        ("heads", {"layer": 2, "head": 0}, "layer 2, head 0"),
        ("heads", {"layer": 1, "head": -1}, "layer 1, head -1"),
        ("heads", {"layer": 1}, "layer 1"),
        ("heads", {}, "prompt 0"),
        ("classes", {"token_class": "unknown"}, "token_class unknown"),
    ],
)
def test_places_that_the_model_and_the_study_do_not_have_are_refused(
    measured: Run, tmp_path: Path, over: str, place: dict[str, Any], words: str
) -> None:
    change = {"hide": {"from": "last"}} if over == "classes" else {"ablate": {}}
    sweep = {"name": "sweep", "sweep": {**change, "over": over}, "control": "none"}
    rows = [*outcome_rows(PROMPTS, {}), {"prompt": 0, "intervention": "sweep", "logprob": -9.0, **place}]
    run = with_outcomes(measured, tmp_path / "made", ["none", sweep], rows)
    with pytest.raises(AttnscopeError, match=f"there is no such place as intervention sweep, .*{words}"):
        intervention_effects(run, "logprob")


def test_a_sweep_and_its_control_are_compared_place_by_place(measured: Run, tmp_path: Path) -> None:
    sweep = {"name": "depth", "sweep": {"hide": HIDE, "over": "layers", "window": 2}}
    used = {(layer,): -2.0 if layer == 1 else 0.0 for layer in range(2)}
    nothing = {(layer,): 0.0 for layer in range(2)}
    rows = [*outcome_rows(PROMPTS, {})]
    for name, places in (("depth", used), ("depth (control)", nothing)):
        rows += swept(name, PROMPTS, places, "layer")
    run = with_outcomes(measured, tmp_path / "made", ["none", sweep], rows)
    beyond = intervention_effects(run, "logprob").filter(intervention="depth", kind="beyond")
    assert beyond["layer"].to_list() == [0, 1]
    assert (beyond["q"] < 0.05).to_list() == [False, True]
    found = outcomes(Side(run, "one", "none"), "depth", "logprob")
    assert found.places == tuple(Place(layer=layer) for layer in range(2))
    assert sides_with_outcomes(run) == [Side(run, "one", "none")]


def test_an_intervention_is_compared_with_each_of_its_controls(measured: Run, tmp_path: Path) -> None:
    specs = [*INTERVENTIONS[:2], {"name": "drawn", "random": "like used"}, {"name": "alike", "matched": "like used"}]
    changes = {"used": -1.5, "drawn": -0.4, "drawn (placebo)": -0.4, "alike": -1.4}
    run = with_outcomes(measured, tmp_path / "made", specs, outcome_rows(PROMPTS, changes))
    beyond = intervention_effects(run, "logprob").filter(intervention="used", kind="beyond")
    assert beyond["against"].to_list() == ["drawn", "alike"]
    assert beyond["effect"].to_list() == pytest.approx([-1.1, -0.1], abs=0.2)
    placebos = intervention_effects(run, "logprob").filter(kind="placebo")
    assert placebos.select("intervention", "against").rows() == [("drawn", "drawn (placebo)")]


def test_clusters_are_the_unit_of_effects(tiny: Path, tmp_path: Path) -> None:
    items = [{"intro": f"Look at {n}.", "question": f"What is {n}?", "topic": f"t{n % 8}"} for n in PROMPTS]
    prompts = {"items": items, "chat": "{intro}\n{question}", "cluster": "topic"}
    models = [{"label": "one", "source": str(tiny)}]
    clustered = performed(study(models, prompts=prompts, conditions=["none"]), tmp_path)
    table = intervention_effects(made(clustered, tmp_path, outcome_rows(PROMPTS)), "logprob")
    assert set(table["n"]) == {40}
    assert set(table["clusters"]) == {8}
    assert table["p"].min() >= 2 / 2**8  # type: ignore[operator]


def test_a_run_without_interventions_has_no_effects(measured: Run) -> None:
    assert sides_with_outcomes(measured) == []
    assert intervention_effects(measured, "logprob").is_empty()
