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


@pytest.fixture(scope="module")
def lens() -> Lens:
    return attnscope.load("smollm2-135m-instruct")


@pytest.mark.parametrize(
    ("name", "segments", "signs"),
    [
        ("symbols", {}, {name: brute.within("drawing", claims) for name, claims in SIGNS.items()}),
        ("filler", {"filler": "inserted", "question": "question", "instruction": "instruction"}, {}),
        ("filler-vs-sentence", {"inserted": "inserted", "question": "question", "instruction": "instruction"}, {}),
    ],
)
def test_a_bundled_study_runs_whole_and_its_masses_are_exact(
    name: str, segments: dict[str, str], signs: dict[str, brute.Belongs], lens: Lens, tmp_path: Path
) -> None:
    run = run_study(name, tmp_path / "run", limit=2)
    classes = signs or {label: brute.of_segment(segment) for label, segment in segments.items()}
    want = brute.masses(run.path, lens, "SmolLM2-135M", classes, ["last", "all"])
    found = run.table("mass").collect()
    keys = ["condition", "prompt", "queries", "layer", "head", "token_class"]
    both = found.join(want, on=keys, suffix="_want").filter(pl.col("token_class").is_in(list(classes)))
    assert len(both) == len(run.conditions) * 2 * 2 * 270 * len(classes)
    assert (both["mass"] - both["mass_want"]).abs().max() <= 1e-5  # type: ignore[operator]
    assert not run.manifest["dropped"]
    for figure in run.study.figures:
        assert (run.path / "figures" / f"{figure.name}.svg").read_text().startswith("<svg")
        assert (run.path / "figures" / f"{figure.name}.md").read_text().startswith("# ")
