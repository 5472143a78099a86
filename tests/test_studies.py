"""The bundled studies, whole, on the real default model: their masses are those of eager attention."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import attnscope
from attnscope import Lens
from attnscope.studies import run_study
from tests.runs import brute

SIGNS = {"hash": brute.characters("#"), "star": brute.characters("*"), "whitespace": brute.pattern(r"\s")}


SOURCES = {"SmolLM2-135M": "smollm2-135m-instruct", "SmolLM2-blocks": "smollm2-135m-blocks"}


@pytest.fixture(scope="module")
def lenses() -> dict[str, Lens]:
    return {label: attnscope.load(source) for label, source in SOURCES.items()}


@pytest.mark.parametrize(
    ("name", "segments", "signs"),
    [
        ("symbols", {}, {name: brute.within("drawing", claims) for name, claims in SIGNS.items()}),
        ("filler", {"filler": "inserted", "question": "question", "instruction": "instruction"}, {}),
        ("filler-vs-sentence", {"inserted": "inserted", "question": "question", "instruction": "instruction"}, {}),
    ],
)
def test_a_bundled_study_runs_whole_and_its_masses_are_exact(
    name: str, segments: dict[str, str], signs: dict[str, brute.Belongs], lenses: dict[str, Lens], tmp_path: Path
) -> None:
    run = run_study(name, tmp_path / "run", limit=2)
    classes = signs or {label: brute.of_segment(segment) for label, segment in segments.items()}
    found = run.table("mass").collect()
    keys = ["condition", "prompt", "queries", "layer", "head", "token_class"]
    assert run.models == [part.label for part in run.study.models]
    for model in run.models:
        want = brute.masses(run.path, lenses[model], model, classes, ["last", "all"])
        mine = found.filter(pl.col("model") == model, pl.col("token_class").is_in(list(classes)))
        both = mine.join(want, on=keys, suffix="_want")
        assert len(both) == len(run.conditions) * 2 * 2 * 270 * len(classes)
        assert (both["mass"] - both["mass_want"]).abs().max() <= 1e-5  # type: ignore[operator]
    assert not run.manifest["dropped"]
    for figure in run.study.figures:
        assert (run.path / "figures" / f"{figure.name}.svg").read_text().startswith("<svg")
        assert (run.path / "figures" / f"{figure.name}.md").read_text().startswith("# ")


def test_symbols_compares_a_model_with_its_fine_tune_on_puzzles_that_it_has_not_seen(tmp_path: Path) -> None:
    run = run_study("symbols", tmp_path / "run", limit=6)
    assert run.models == list(SOURCES)
    options = run.study.prompts.options
    assert options["part"] == "held-out"
    bars = pl.read_csv(run.path / "figures" / "symbols.csv")
    assert bars["group"].unique(maintain_order=True).to_list() == ["Layer 0", "Layer 17", "Layer 21", "Layer 28"]
    tuned = bars.filter(pl.col("bar") == "SmolLM2-blocks")
    assert tuned["against"].unique().to_list() == ["SmolLM2-135M"]
    totals = bars.group_by("group", "bar", maintain_order=True).agg(pl.col("mass").sum())
    apart = totals.filter(pl.col("bar") == "SmolLM2-blocks")["mass"] - totals.filter(bar="SmolLM2-135M")["mass"]
    assert tuned.unique("group", maintain_order=True)["difference"].to_list() == pytest.approx(apart.to_list())
    change = pl.read_csv(run.path / "figures" / "symbols-change.csv")
    assert len(change) == 270
    assert change["value"].abs().max() > 0  # type: ignore[operator]
    assert change["q"].is_between(0, 1).all()
