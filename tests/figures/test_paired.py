"""Differences shown in figures are those within prompts, with their significance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers
import yaml

from attnscope.analysis.effects import effects
from attnscope.analysis.run import Run
from attnscope.analysis.sides import empty_classes
from attnscope.errors import AttnscopeError
from attnscope.figures import Look
from attnscope.figures.kinds.bars.statistics import _compared
from attnscope.figures.write import draw_tables
from attnscope.report.write import report_run
from attnscope.studies import request_study, run_study
from tests.runs.conftest import save_tiny

LOOK = Look(title="T", y="share", caption="C.")
FIGURES: list[dict[str, Any]] = [
    {"name": "mass", "kind": "bars", "classes": ["hash", "blank"], "queries": "last"},
    {"name": "map", "kind": "heatmap", "measure": ["hash", "blank"], "difference": ["one", "two"], "queries": "last"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("paired")
    one, two = save_tiny(home / "one", 0), save_tiny(home / "two", 0)
    tuned = transformers.LlamaForCausalLM.from_pretrained(two)
    torch.manual_seed(4)
    for weight in tuned.parameters():
        weight.data += 0.02 * torch.randn_like(weight)
    tuned.save_pretrained(two)
    models = [{"label": folder.name, "source": str(folder)} for folder in (one, two)]
    items = [{"text": "# " * (number % 5 + 1) + "and " * (number % 3) + "more"} for number in range(8)]
    told = {
        "models": models,
        "prompts": {"items": items, "plain": "{text}"},
        "classes": {"hash": "#", "blank": "re:\\s", "both": "re:[#\\s]"},
        "measure": {"queries": ["last", "all"]},
        "figures": FIGURES,
    }
    (home / "study.yaml").write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    return run_study(str(home / "study.yaml"), home / "run")


def by_prompt(run: Run, model: str, *classes: str) -> pl.DataFrame:
    """prompt, layer, head, mass on some classes, by default both of the figures'."""
    rows = run.table("mass").filter(
        pl.col("model") == model,
        pl.col("queries") == "last",
        pl.col("token_class").is_in(classes or ["hash", "blank"]),
    )
    return rows.group_by("prompt", "layer", "head").agg(pl.col("mass").sum()).sort("prompt", "layer", "head").collect()


def test_a_bar_is_compared_with_its_groups_first_within_prompts(run: Run) -> None:
    bars = pl.read_csv(run.path / "figures" / "mass.csv")
    apart = []
    for names in ((), *((name,) for name in run.classes)):  # the bar, and with it every class, in all layers
        means = [by_prompt(run, model, *names)["mass"].to_numpy().reshape(8, 2, 4).mean(2) for model in run.models]
        apart.append(means[1] - means[0] if names != ("both",) else np.full((8, 2), np.nan))  # which has no token
    want = effects(np.concatenate(apart, 1), pools=np.repeat(range(len(apart)), 2).tolist(), seed=run.study.seed)
    second = bars.filter(pl.col("bar") == "two").unique("group", maintain_order=True)
    assert second["against"].to_list() == ["one", "one"]
    assert second["pairs"].to_list() == [8, 8]
    for column, numbers in (("difference", want.mean), ("difference_low", want.low), ("q", want.q)):
        assert second[column].to_list() == pytest.approx(numbers[:2].tolist())
    assert bars.filter(pl.col("bar") == "one")["difference"].null_count() == 4
    told = (run.path / "figures" / "mass.md").read_text(encoding="utf-8")
    assert f"Layer 0: two minus one, paired over 8 prompts, is {want.mean[0]:.4f}" in told


def of_bars(models: int, conditions: int) -> pl.DataFrame:
    """Bars in the order drawn, of one group."""
    places = [(model, condition) for model in range(models) for condition in range(conditions)]
    return pl.DataFrame(
        [
            {"group": "L", "bar": f"m{model} / c{condition}", "model_place": model, "condition_place": condition}
            for model, condition in places
        ]
    )


@pytest.mark.parametrize(
    ("models", "conditions", "want"),
    [
        (
            2,
            3,
            {"m0 / c1": "m0 / c0", "m0 / c2": "m0 / c0", "m1 / c0": "m0 / c0"}
            | dict.fromkeys(("m1 / c1", "m1 / c2"), "m1 / c0"),
        ),
        (3, 1, {"m1 / c0": "m0 / c0", "m2 / c0": "m0 / c0"}),
        (1, 1, {}),
    ],
)
def test_a_bar_is_compared_with_one_that_differs_in_one_thing(
    models: int, conditions: int, want: dict[str, str]
) -> None:
    pairs = _compared(of_bars(models, conditions))
    assert dict(pairs.select("bar", "against").iter_rows()) == want


def test_a_map_of_a_change_grays_what_is_not_significant_and_counts_the_rest(run: Run) -> None:
    change = pl.read_csv(run.path / "figures" / "map.csv")
    there = [name for name in run.classes if name not in empty_classes(run)]
    family = [(), *((name,) for name in there)]  # the sum that is shown, and every class that has tokens
    apart = [
        (by_prompt(run, "two", *names)["mass"] - by_prompt(run, "one", *names)["mass"]).to_numpy().reshape(8, 8)
        for names in family
    ]
    want = effects(np.concatenate(apart, 1), seed=run.study.seed)
    assert change["value"].to_list() == pytest.approx(want.mean[:8].tolist())
    assert change["q"].to_list() == pytest.approx(want.q[:8].tolist())
    sure = int((want.q[:8] < 0.05).sum())
    told = (run.path / "figures" / "map.md").read_text(encoding="utf-8")
    least = np.nanmin(want.smallest[:8]) * np.isfinite(want.p).sum()
    too_few = "too few prompts or clusters for one head alone to be significant"
    counts = too_few if not sure and least >= 0.05 else f"{sure} of 8 heads"
    assert f"Change significantly (q < 0.05): {counts}" in told
    picture = (run.path / "figures" / "map.svg").read_text(encoding="utf-8")
    assert picture.count("#bdbdbd") == 8 - sure


def test_a_class_that_others_left_nothing_is_told(run: Run) -> None:
    assert empty_classes(run) == ["both"]
    made = report_run(run.path)
    assert made.empty == {"both": "earlier classes claim all of its tokens"}
    assert "both: earlier classes claim all of its tokens" in made.page.read_text(encoding="utf-8")


def bars(difference: float | None, q: float | None, pairs: int | None = 9) -> str:
    rows: list[dict[str, Any]] = [
        {"group": "G", "bar": bar, "token_class": "c", "mass": mass, "total_low": mass - 0.1, "total_high": mass + 0.1}
        for bar, mass in (("one", 0.4), ("two", 0.5))
    ]
    known = {"against": "one", "difference": difference, "q": q, "pairs": pairs}
    rows[1] |= known | {"difference_low": None if q is None else 0.05, "difference_high": None if q is None else 0.15}
    return draw_tables("bars", {"t": pl.DataFrame(rows, infer_schema_length=None)}, LOOK).alt


def test_a_difference_has_its_interval_and_its_significance() -> None:
    sure = "G: two minus one, paired over 9 prompts, is 0.1000 (0.0500 to 0.1500); q = 0.012."
    assert sure in bars(0.1, 0.012)
    assert "q < 0.0001." in bars(0.1, 0.00001)
    assert "q = 0.2, not significant." in bars(0.1, 0.2)
    assert "is 0.1000; too few prompts for a test." in bars(0.1, None, pairs=4)
    assert "is 0.1000; the clusters of prompts are too few or too unequal for a test." in bars(0.1, None)
    assert "two minus one, paired by prompt, is 0.1000" in bars(0.1, 0.01, pairs=None)
    assert "two is above one, 0.5000 to 0.4000, by 0.1000 (x1.25); not tested" in bars(None, None)


@pytest.mark.parametrize(
    ("measure", "told"),
    [
        (["hash", "star"], "no class or measure 'star'"),
        (["hash", "sink"], "sink can't be added"),
        ("hsh", "near: hash"),
    ],
)
def test_a_sum_that_makes_no_sense_is_refused(tmp_path: Path, measure: Any, told: str) -> None:
    text = {
        "models": [{"label": "m", "source": "m"}],
        "prompts": {"items": [{"text": "a"}], "plain": "{text}"},
        "classes": {"hash": "#"},
        "figures": [{"name": "f", "kind": "heatmap", "measure": measure}],
    }
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(text), encoding="utf-8")
    with pytest.raises(AttnscopeError, match=told):
        request_study(str(path))
