"""Figures of effects: their numbers are those of the analysis, and their words keep cause, control and chance apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from attnscope.analysis.intervention_effects import intervention_effects
from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.figures.prose import markdown
from attnscope.figures.write import Figure, content, figure_of
from attnscope.study.schema import FigureSpec
from tests.analysis.conftest import measured, tiny
from tests.analysis.planted import HIDE, INTERVENTIONS, PROMPTS, outcome_rows, swept
from tests.handmade import with_outcomes

__all__ = ["measured", "tiny"]

TIER = "command"

DEPTH = {"name": "depth", "sweep": {"hide": HIDE, "over": "layers", "window": 2}}
HEADS = {"name": "heads", "sweep": {"ablate": {}, "over": "heads"}}
CLASSES = {"name": "classes", "sweep": {"hide": {"from": "last"}, "over": "classes"}}


def drawn(run: Run, **options: Any) -> Figure:
    return figure_of(run, FigureSpec.model_validate({"name": "effects", "kind": "effect", **options}))


@pytest.fixture(scope="module")
def planted(measured: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Single interventions and a sweep of each kind; window 1, head 1.2 and the class question have an effect."""
    rows = outcome_rows(PROMPTS)
    layers = {(layer,): -2.0 if layer == 1 else 0.0 for layer in range(2)}
    heads = {(layer, head): -2.0 if (layer, head) == (1, 2) else 0.0 for layer in range(2) for head in range(4)}
    classes = {("question",): -2.0, ("marks",): 0.0}
    rows += [*swept("depth", PROMPTS, layers, "layer"), *swept("heads", PROMPTS, heads, "layer", "head")]
    rows += swept("classes", PROMPTS, classes, "token_class")
    for name, places, key in (("depth", layers, "layer"), ("classes", classes, "token_class")):
        rows += swept(f"{name} (control)", PROMPTS, dict.fromkeys(places, 0.0), key)
        rows += swept(f"{name} (control) (placebo)", PROMPTS, dict.fromkeys(places, 0.0), key)
    scores = ["logprob", "kl", "flips", "accuracy"]
    home = tmp_path_factory.mktemp("planted") / "run"
    return with_outcomes(measured, home, [*INTERVENTIONS, DEPTH, HEADS, CLASSES], rows, {"scores": scores, "margin": 1})


def test_a_figure_has_the_numbers_of_the_analysis(planted: Run) -> None:
    table = drawn(planted).table
    effects = intervention_effects(planted, "logprob")
    (used,) = table.filter(role="intervention", place="used").to_dicts()
    change, beyond = (
        effects.filter(intervention="used", kind=kind).row(0, named=True) for kind in ("change", "beyond")
    )
    assert [used[name] for name in ("value", "low", "q", "n")] == [change[name] for name in ("effect", "low", "q", "n")]
    assert [used["difference"], used["difference_q"]] == [beyond["effect"], beyond["q"]]
    assert used["against"] == "used (control)"
    assert table["role"].to_list() == ["intervention", "control", "placebo"] * 2


def test_the_reading_says_what_goes_beyond_the_control_and_what_cannot_be_shown(planted: Run) -> None:
    words = markdown(drawn(planted).reading)
    assert "**used**: it significantly lowers the log probability of the answer by 1." in words
    assert "of it goes significantly beyond the control (q " in words
    assert "**ignored**: its effect on the log probability of the answer is significantly within the margin" in words
    for never in ("because", "gaze", "chance"):
        assert never not in words


@pytest.mark.parametrize(("by", "place"), [("layer", "layer 1"), ("head", "layer 1 head 2"), ("class", "question")])
def test_each_sweep_shows_where_the_effect_is(planted: Run, by: str, place: str) -> None:
    figure = drawn(planted, by=by)
    rows = figure.table.filter(role="intervention")
    q = "q" if by == "head" else "difference_q"
    assert rows.filter(pl.col(q) < 0.05)["place"].to_list() == [place]
    assert ("layer 1 head 2" if by == "head" else place) in markdown(figure.reading)


def test_numbers_from_one_hold_in_the_table_and_in_places(planted: Run) -> None:
    table = drawn(planted, by="head", number_from=1).table
    assert table.filter(pl.col("q") < 0.05)["place"].to_list() == ["layer 2 head 3"]
    assert drawn(planted, by="layer", number_from=1).table["place"].to_list()[:2] == ["layers 1 to 2", "layer 2"]


@pytest.mark.parametrize("score", ["kl", "flips", "accuracy"])
@pytest.mark.parametrize("by", ["layer", "head", "class", "intervention"])
def test_every_score_is_drawn_in_every_way(planted: Run, by: str, score: str) -> None:
    figure = drawn(planted, by=by, score=score)
    assert content(figure, ".png")
    if score in ("kl", "flips"):
        assert figure.table["q"].is_null().all()
        assert "Change significantly" not in markdown(figure.reading)


def test_names_of_any_kind_are_drawn_and_read(measured: Run, tmp_path: Path) -> None:
    name = 'constructor <b>x</b> "y" ' + "long " * 12
    spec = {"name": name, "hide": HIDE, "control": "none"}
    run = with_outcomes(measured, tmp_path / "run", ["none", spec], outcome_rows(PROMPTS, {name: -1.0}))
    figure = drawn(run)
    assert content(figure, ".svg").count(b"<b>") == 0
    assert figure.table["against"].to_list() == [None]
    assert "constructor" in markdown(figure.reading)


def test_few_prompts_have_no_interval_and_say_why(measured: Run, tmp_path: Path) -> None:
    run = with_outcomes(measured, tmp_path / "run", INTERVENTIONS, outcome_rows([0]))
    figure = drawn(run)
    assert content(figure, ".png")
    assert "one prompt, so no interval" in figure.look.caption
    assert "(too few prompts for a test)" in markdown(figure.reading)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"interventions": ["unused"]}, "there is no intervention 'unused' that changes one thing"),
        ({"interventions": ["used (control)"]}, "there is no intervention 'used \\(control\\)'"),
        ({"by": "layer", "interventions": ["used"]}, "there is no intervention 'used' that sweeps over layers"),
        ({"queries": "last"}, "effects are of no query group"),
        ({"by": "depth"}, "by"),
        ({"measure": "question"}, "effect has no option 'measure'"),
    ],
)
def test_what_the_study_does_not_have_is_refused(planted: Run, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(AttnscopeError, match=problem):
        drawn(planted, **options)


def test_a_score_and_a_sweep_that_the_study_lacks_are_refused(measured: Run, tmp_path: Path) -> None:
    run = with_outcomes(measured, tmp_path / "run", INTERVENTIONS, outcome_rows(PROMPTS))
    with pytest.raises(AttnscopeError, match="outcome has no score 'kl'"):
        drawn(run, score="kl")
    with pytest.raises(AttnscopeError, match="no intervention sweeps over heads"):
        drawn(run, by="head")
    with pytest.raises(AttnscopeError, match="the study has no interventions"):
        drawn(measured)
