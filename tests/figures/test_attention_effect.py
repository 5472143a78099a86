"""Attention against effect: a planted truth, a decoy that looks and is ignored, and words that claim no cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from attnscope.analysis.run import Run
from attnscope.analysis.sides import masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures.prose import markdown
from attnscope.figures.write import Figure, content, figure_of
from attnscope.study.schema import FigureSpec
from tests.analysis.conftest import measured, tiny
from tests.analysis.planted import INTERVENTIONS, PROMPTS, outcome_rows, swept
from tests.handmade import with_outcomes

__all__ = ["measured", "tiny"]

TIER = "command"

HEADS = {"name": "heads", "sweep": {"ablate": {}, "over": "heads"}}


def drawn(run: Run, **options: Any) -> Figure:
    spec = {"name": "predicts", "kind": "attention-effect", "measure": "question", **options}
    return figure_of(run, FigureSpec.model_validate(spec))


def attention(run: Run) -> dict[tuple[int, int], float]:
    means = mean_of_seen(masses(run, "one", "none", "last").of(["question"])[0], 0)
    layers, heads = run.layers("one"), run.heads("one")
    return {(layer, head): float(means[i, j]) for i, layer in enumerate(layers) for j, head in enumerate(heads)}


def run_with(measured: Run, home: Path, effects: dict[tuple[int, int], float], **more: Any) -> Run:
    rows = [*outcome_rows(PROMPTS, {}), *swept("heads", PROMPTS, effects, "layer", "head", noise=0.1)]
    return with_outcomes(measured, home / "run", ["none", HEADS], rows, more)


def test_a_planted_relation_is_said_to_be_one(measured: Run, tmp_path: Path) -> None:
    effects = {head: -4.0 * value for head, value in attention(measured).items()}
    figure = drawn(run_with(measured, tmp_path, effects))
    row = figure.table.row(0, named=True)
    assert row["spearman"] < -0.9
    assert row["spearman_high"] < 0
    words = markdown(figure.reading)
    assert "Attention predicts effect, significantly" in words
    assert "because" not in words
    assert f"Spearman's correlation {row['spearman']:.2f}" in figure.look.caption
    assert content(figure, ".png")


def test_a_decoy_that_looks_and_is_ignored_is_not_taken_for_the_head_that_is_used(
    measured: Run, tmp_path: Path
) -> None:
    looks = sorted(attention(measured).items(), key=lambda item: -item[1])
    decoy, used = looks[0][0], looks[-1][0]
    effects = {head: -2.0 if head == used else 0.0 for head, _ in looks}
    table = drawn(run_with(measured, tmp_path, effects)).table
    strong = table.filter(pl.col("q") < 0.05).select("layer", "head").rows()
    assert strong == [used]
    assert table.sort("attention")["layer", "head"].rows()[-1] == decoy
    words = markdown(drawn(run_with(measured, tmp_path / "again", effects)).reading)
    assert "It is not the head with most attention." in words


def test_where_no_head_has_an_effect_nothing_is_claimed(measured: Run, tmp_path: Path) -> None:
    figure = drawn(run_with(measured, tmp_path, dict.fromkeys(attention(measured), 0.0)))
    row = figure.table.row(0, named=True)
    assert row["spearman_low"] <= 0 <= row["spearman_high"]
    words = markdown(figure.reading)
    assert "That attention predicts effect can't be shown" in words
    assert "No effect of a head alone is significant" in words


def test_effects_are_over_the_prompts_that_have_both(measured: Run, tmp_path: Path) -> None:
    effects = attention(measured)
    rows = [*outcome_rows(PROMPTS, {}), *swept("heads", PROMPTS[:30], effects, "layer", "head")]
    run = with_outcomes(measured, tmp_path / "run", ["none", HEADS], rows)
    table = drawn(run, number_from=1).table
    assert set(table["n"]) == set(table["tested"]) == {30}
    assert table["layer"].min() == 1
    known = masses(run, "one", "none", "last").of(["question"])[0][:30, 0, 0]
    assert table.row(0, named=True)["attention"] == pytest.approx(np.mean(known))


def test_heads_that_all_do_the_same_have_no_correlation(measured: Run, tmp_path: Path) -> None:
    rows = [{"prompt": each, "intervention": "none", "logprob": -3.0} for each in PROMPTS]
    rows += [
        {"prompt": each, "intervention": "heads", "logprob": -3.0, "layer": layer, "head": head}
        for each in PROMPTS
        for layer, head in attention(measured)
    ]
    figure = drawn(with_outcomes(measured, tmp_path / "run", ["none", HEADS], rows))
    assert figure.table["spearman"].is_null().all()
    assert "There is no correlation of attention and effect" in markdown(figure.reading)
    assert content(figure, ".svg")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"intervention": "used"}, "there is no intervention 'used' that sweeps over heads"),
        ({"measure": "nothing"}, "there is no class or measure 'nothing'"),
        ({"score": "kl"}, "outcome has no score 'kl'"),
    ],
)
def test_what_the_study_does_not_have_is_refused(
    measured: Run, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    run = run_with(measured, tmp_path, dict.fromkeys(attention(measured), 0.0))
    with pytest.raises(AttnscopeError, match=problem):
        drawn(run, **options)


def test_a_study_without_a_sweep_over_heads_cannot_show_it(measured: Run, tmp_path: Path) -> None:
    run = with_outcomes(measured, tmp_path / "run", INTERVENTIONS, outcome_rows(PROMPTS))
    with pytest.raises(AttnscopeError, match="no intervention sweeps over heads"):
        drawn(run)
