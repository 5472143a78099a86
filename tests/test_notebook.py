"""Views of a run as objects that show themselves."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

import attnscope
from attnscope.figures.write import figure_of
from attnscope.study.schema import FigureSpec
from tests.analysis.conftest import performed, study
from tests.runs.conftest import save_tiny

TIER = "command"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> attnscope.Run:
    home = tmp_path_factory.mktemp("notebook")
    sources = [{"label": label, "source": str(save_tiny(home / label, seed))} for seed, label in enumerate(("a", "b"))]
    made = performed(study(sources), home)
    return attnscope.Run(made.path)


def pictures(shown: str) -> list[str]:
    return [base64.b64decode(each).decode() for each in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", shown)]


def test_a_map_shows_itself_with_the_files_numbers(run: attnscope.Run) -> None:
    view = run.heatmap("question", condition="filler", minus="none")
    assert [picture[:4] for picture in pictures(view._repr_html_())] == ["<svg"]
    held = run.table("mass").filter(model="a", queries="last", token_class="question").collect()  # noqa: S106
    by = held.group_by("condition", "layer", "head").agg(pl.col("mass").mean())
    apart = by.filter(condition="filler").join(by.filter(condition="none"), on=["layer", "head"])
    wanted = {(row["layer"], row["head"]): row["mass"] - row["mass_right"] for row in apart.iter_rows(named=True)}
    found = {(row["layer"], row["head"]): row["value"] for row in view.figures[0].table.iter_rows(named=True)}
    assert found == {place: pytest.approx(value) for place, value in wanted.items()}
    assert "Observations" in repr(view)
    assert "b minus a" in repr(run.heatmap(model="b", minus="a"))


def test_a_head_and_a_prompt_show_themselves_and_can_be_made_again(run: attnscope.Run, tmp_path: Path) -> None:
    head, prompt = run.head(1, 2), run.prompt(4, beside="filler", layer=1)
    assert len(pictures(head._repr_html_())) == 3
    assert head.facts[0].startswith("none: ")
    assert len(pictures(prompt._repr_html_())) == 1
    assert "Prompt 4" in repr(prompt)
    for view in (head, prompt):
        for figure, line in zip(view.figures, yaml.safe_load(view.study), strict=True):
            assert figure_of(run, FigureSpec.model_validate(line)).table.equals(figure.table)
    assert {path.suffix for path in head.save(tmp_path)} == {".svg", ".png", ".pdf", ".json", ".csv", ".md"}


def test_what_is_not_there_is_refused_with_what_is_near(run: attnscope.Run) -> None:
    for ask, words in (
        (lambda: run.heatmap("questoin"), "near: question"),
        (lambda: run.heatmap(model="c"), "there is no model 'c'"),
        (lambda: run.head(9, 0), "layer 9 of a was not measured"),
        (lambda: run.prompt(99), "prompt 99 was not measured"),
        (lambda: run.prompt(0, beside="filer"), "near: filler"),
        (lambda: run.head(0, 0, conditions=["filer"]), "near: filler"),
    ):
        with pytest.raises(attnscope.AttnscopeError, match=words):
            ask()


def test_what_is_no_number_name_or_folder_is_refused(run: attnscope.Run) -> None:
    asks: list[tuple[Callable[[Any], object], str]] = [
        (lambda it: run.head(it, 0), "layer can't be .*a whole number, 0 or more"),
        (lambda it: run.head(0, it), "head can't be .*a whole number, 0 or more"),
        (lambda it: run.prompt(it), "number can't be .*a whole number, 0 or more"),
        (lambda it: run.heatmap(it), "measure is not a name or a list"),
        (lambda it: run.heatmap(minus=it), "minus is of type "),
        (lambda it: run.heatmap(queries=it), "there is no query group"),
        (lambda it: run.prompt(0, beside=it), "beside is of type "),
        (lambda it: run.head(0, 0, conditions=it), "conditions are not names"),
        (lambda it: run.rows("mass", it, "none", ["prompt"]), "model is of type "),
        (lambda it: run.rows("mass", "a", "none", it), "columns are not names"),
        (lambda it: run.rows("mass", "a", "none", ["prompt"], it), "prompt can't be "),
        (lambda it: run.cells_of(it, "none"), "model is of type "),
        (lambda it: run.prompts("a", it), "condition is of type "),
        (lambda it: run.layers(it), "there is no model"),
        (lambda it: run.compare(it), "is not a run"),
        (lambda it: run.export(it), "to export"),
        (lambda it: attnscope.Run(it), "path is of type .*the folder of a run"),
    ]
    for ask, words in asks:
        for it in ([3], 1.5, True, np.array([1, 2])):
            with pytest.raises(attnscope.AttnscopeError, match=words):
                ask(it)
    with pytest.raises(attnscope.AttnscopeError, match=r"table 'mass' has no column 'promt'.*near: prompt"):
        run.rows("mass", "a", "none", ["promt"])
    with pytest.raises(attnscope.AttnscopeError, match=r"there is no model 'c' in this run"):
        run.depth("c")
    assert run.head(np.int64(1), np.array(2)).title == run.head(1, 2).title  # type: ignore[arg-type]


def test_running_a_study_gives_a_run_that_shows_itself(run: attnscope.Run, tmp_path: Path) -> None:
    again = attnscope.run_study(str(run.path / "study.yaml"), run.path)
    assert "All heads" in again.heatmap()._repr_html_()
