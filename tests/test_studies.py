"""The bundled studies, whole, on the real default model: their masses are those of eager attention."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import attnscope
from attnscope import Lens, Run
from attnscope.figures.kinds.lines import LinesOptions
from attnscope.figures.validation import options_of
from attnscope.studies import run_study
from tests.handmade import exported
from tests.runs import brute
from tests.tolerances import DEEP, SUMMED

SIGNS = {"hash": brute.characters("#"), "star": brute.characters("*"), "whitespace": brute.pattern(r"\s")}


pytestmark = pytest.mark.model

SOURCES = {"SmolLM2-135M": "smollm2-135m-instruct", "SmolLM2-blocks": "smollm2-135m-blocks"}
EVERY = {**SOURCES, "Gemma-3-270M": "gemma-3-270m", "MiniLM-L6": "minilm-l6"}
HEADS = {"SmolLM2-135M": 30 * 9, "SmolLM2-blocks": 30 * 9, "Gemma-3-270M": 18 * 4, "MiniLM-L6": 6 * 12}


@pytest.fixture(scope="module")
def lenses() -> dict[str, Lens]:
    return {label: attnscope.load(source) for label, source in EVERY.items()}


PROMPTS = {"symbols": 6, "filler": 2, "encoder": 2, "filler-vs-sentence": 1}


@pytest.mark.parametrize(
    ("name", "segments", "signs"),
    [
        ("symbols", {}, {name: brute.within("drawing", claims) for name, claims in SIGNS.items()}),
        ("filler", {"filler": "inserted", "question": "question", "instruction": "instruction"}, {}),
        ("encoder", {}, {"punctuation": brute.pattern(r"[^\w\s]"), "words": brute.pattern(r"[\w\s]")}),
        ("filler-vs-sentence", {"inserted": "inserted", "question": "question", "instruction": "instruction"}, {}),
    ],
)
def test_a_bundled_study_runs_whole_and_its_masses_are_exact(
    name: str,
    segments: dict[str, str],
    signs: dict[str, brute.Belongs],
    lenses: dict[str, Lens],
    tmp_path: Path,
) -> None:
    run = run_study(name, tmp_path / "run", limit=PROMPTS[name])
    classes = signs or {label: brute.of_segment(segment) for label, segment in segments.items()}
    found = run.table("mass").collect()
    keys = ["condition", "prompt", "queries", "layer", "head", "token_class"]
    groups = run.queries
    assert run.models == [part.label for part in run.study.models]
    for model in run.models:
        want = brute.masses(run.path, lenses[model], model, classes, groups)
        mine = found.filter(pl.col("model") == model, pl.col("token_class").is_in(list(classes)))
        both = mine.join(want, on=keys, suffix="_want")
        assert len(both) == len(run.conditions) * PROMPTS[name] * len(groups) * HEADS[model] * len(classes)
        assert (both["mass"] - both["mass_want"]).abs().max() <= DEEP  # type: ignore[operator]
    if name == "filler-vs-sentence":
        check_lines_of_two_tokenizers(run)
    if name == "symbols":
        check_fine_tune_on_puzzles_that_it_has_not_seen(run)
    assert not run.manifest.dropped
    for figure in run.study.figures:
        assert (run.path / "figures" / f"{figure.name}.svg").read_text().startswith("<svg")
        assert (run.path / "figures" / f"{figure.name}.md").read_text().startswith("# ")


def check_lines_of_two_tokenizers(run: Run) -> None:
    """What Gemma's tokens receive is drawn over SmolLM2's tokens by the characters they share."""
    figure = options_of(next(part for part in run.study.figures if part.name == "filler-vs-sentence-both"))
    assert isinstance(figure, LinesOptions)
    assert figure.panels
    first, other = figure.panels[0].places
    drawn = pl.read_csv(run.path / "figures" / f"{figure.name}.csv").filter(
        pl.col("series").str.starts_with(other.model)
    )
    shown: dict[int, float] = dict(drawn.select("position", "attention").iter_rows())
    here = pl.col("condition") == (figure.conditions or [""])[0]
    received = exported(run).filter(here, model=other.model, queries="last", layer=other.layer, head=other.head)
    by_prompt: dict[int, list[float]] = dict(received.select("prompt", "received").iter_rows())
    tokens = run.table("tokens").filter(here, segment="question").sort("position").collect()
    values: dict[int, list[float]] = {}
    for prompt, numbers in by_prompt.items():
        theirs, ours = (
            tokens.filter(model=place.model, prompt=prompt).select("start", "end", "position", "base_position").rows()
            for place in (other, first)
        )
        by_character = [
            numbers[position] / (end - start) for start, end, position, _ in theirs for _ in range(start, end)
        ]
        for start, end, _, base in ours:
            values.setdefault(base, []).append(sum(by_character[start - ours[0][0] : end - ours[0][0]]))
    whole = {base: each for base, each in values.items() if len(each) == len(by_prompt)}
    assert len(whole) > 5
    for base, each in whole.items():
        assert shown[base] == pytest.approx(sum(each) / len(each), abs=SUMMED)


def check_fine_tune_on_puzzles_that_it_has_not_seen(run: Run) -> None:
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
    assert change["q"].is_between(0, 1).all(ignore_nulls=False)
