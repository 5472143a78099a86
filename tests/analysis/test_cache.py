"""Where numbers come from makes no difference: cached results or computed now, one prompt or all at once."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from attnscope.analysis.cache import FOLDER
from attnscope.analysis.head_kinds import scores
from attnscope.analysis.insertion import insertion
from attnscope.analysis.ranking import ranked_by_distance
from attnscope.analysis.received import HeadChoice, head_along, read_attention, tokens_of
from attnscope.analysis.run import ChangedError, Run
from attnscope.analysis.sides import masses
from attnscope.figures.write import figure_of
from attnscope.report.write import report_run
from attnscope.runs.integrity import DamagedError
from attnscope.studies import perform_request, request_study
from attnscope.study.schema import FigureSpec

TIER = "command"


def copied(run: Run, home: Path, *without: str) -> Run:
    shutil.copytree(run.path, home)
    for name in without:
        shutil.rmtree(home / name)
    return Run(home)


def everything(run: Run) -> list[Any]:
    """Numbers of every kind that is read from shards or cached."""
    found: list[Any] = []
    for queries in run.study.measure.queries:
        found += list(scores(run, "one", "filler", queries).scores.values())
        found += list(scores(run, "one", "filler", queries).chance.values())
        split = insertion(run, "one", "none", "filler", queries)
        found += [split.had, split.has, split.moved, split.taken]
        ranked = ranked_by_distance(run, "one", queries, "visible", "none", "filler")
        found.append(np.array([*ranked.effect.values()]))
        for over in ("visible", "all"):
            found.append(head_along(run, HeadChoice("one", queries, (1,), (2,), over), "filler"))
            some = HeadChoice("one", queries, (1, 0), (2, 0, 3), over, with_views=True)
            found += [
                part
                for prompt_attention in read_attention(run, some, "filler")
                for part in (prompt_attention.attention, prompt_attention.uniform, prompt_attention.seen)
            ]
    for compared in run.compare():
        found += [part.select(pl.col(pl.Float64, pl.Int64)).to_numpy() for part in (compared.heads, compared.overall)]
    return found


def same(one: list[Any], two: list[Any]) -> None:
    assert len(one) == len(two) > 10
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)


def test_what_a_report_cached_is_what_would_be_computed_now(run: Run, tmp_path: Path) -> None:
    held = copied(run, tmp_path / "held")
    assert len(list((held.path / FOLDER).iterdir())) > 20
    same(everything(held), everything(copied(run, tmp_path / "now", FOLDER)))


def test_a_head_along_all_prompts_is_what_prompt_by_prompt_gives(run: Run) -> None:
    chosen = HeadChoice("one", "all", (1,), (3,))
    flat = head_along(run, chosen, "sentence")
    one_by_one = [prompt_attention.attention[0, 0] for prompt_attention in read_attention(run, chosen, "sentence")]
    np.testing.assert_array_equal(flat, np.concatenate(one_by_one))
    assert len(flat) == tokens_of(run, "one", "sentence").ends[-1]


def lie(path: Path) -> None:
    """Every cached number is another, in files that are tables."""
    for each in path.iterdir():
        frame = pl.read_parquet(each)
        frame.with_columns(pl.col(pl.Float64) + 1).write_parquet(each)


def spoil(path: Path) -> None:
    for each in path.iterdir():
        each.write_bytes(b"not a table")


def swap(path: Path) -> None:
    """Every result bears the name of another question, and its own checksum."""
    content = {each.name: each.read_bytes() for each in sorted(path.iterdir())}
    questions = [name.partition("-")[0] for name in content]
    for question, (name, data) in zip([*questions[1:], questions[0]], content.items(), strict=True):
        (path / name).unlink()
        (path / f"{question}-{name.partition('-')[2]}").write_bytes(data)


@pytest.mark.parametrize("change", [lie, spoil, swap])
def test_a_changed_result_is_computed_again_without_a_word(
    run: Run, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    broken = copied(run, tmp_path / "broken")
    change(broken.path / FOLDER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = everything(broken)
        same(numbers, everything(run))
        report_run(broken.path)
        same(everything(Run(broken.path)), numbers)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text(path.read_text().replace("segment:question", "segment:intro")),
        lambda path: path.write_text(path.read_text().replace("number 3.", "number three.")),
        lambda path: path.write_text(path.read_text().replace("seed: 5", "seed: 77")),
    ],
)
def test_results_of_other_tables_are_never_found(run: Run, tmp_path: Path, change: Callable[[Path], Any]) -> None:
    home = tmp_path / "changed"
    shutil.copytree(run.path, home)
    lie(home / FOLDER)
    change(home / "study.yaml")
    perform_request(request_study(str(home / "study.yaml"), evidence="quick"), home)
    other = Run(home)
    assert (other.tables_key, other.statistics_key) != (run.tables_key, run.statistics_key)
    same(everything(other), everything(copied(other, tmp_path / "fresh", FOLDER)))
    report_run(home)
    assert len(list((home / FOLDER).iterdir())) == len(list((run.path / FOLDER).iterdir()))  # the old ones are gone


def test_of_a_table_changed_by_hand_nothing_is_cached_and_it_is_what_counts(run: Run, tmp_path: Path) -> None:
    mine = copied(run, tmp_path / "mine")
    mass = pl.read_parquet(mine.path / "mass.parquet", memory_map=False)
    mass.with_columns(pl.col("mass") / 2).write_parquet(mine.path / "mass.parquet")
    with pytest.raises(DamagedError, match=r"table 'mass' was changed or damaged.*verify=False"):
        masses(Run(mine.path), "one", "none")
    opened = Run(mine.path, verify=False)
    np.testing.assert_array_equal(masses(opened, "one", "none").mass, masses(run, "one", "none").mass / 2)
    before = sorted((mine.path / FOLDER).iterdir())
    opened.compare()
    assert sorted((mine.path / FOLDER).iterdir()) == before


def test_tables_written_while_a_run_is_open_are_not_mixed(run: Run, tmp_path: Path) -> None:
    opened = copied(run, tmp_path / "open")
    opened.table("mass").collect()
    perform_request(request_study(str(opened.path / "study.yaml"), limit=3, evidence="quick"), opened.path)
    with pytest.raises(ChangedError, match="was rewritten while it was being read"):
        opened.table("mass")
    assert len(Run(opened.path).table("prompts").collect()) == 9


def test_a_map_sorted_by_effect_has_the_same_values_the_largest_first(run: Run) -> None:
    part = FigureSpec(name="map", kind="heatmap", measure="question", difference=["none", "filler"], sort="effect")
    made = figure_of(run, part).table
    plain = figure_of(run, part.model_copy(update={"sort": "depth"})).table
    keys = ["layer", "head", "value", "q"]
    assert made.select(keys).sort("layer", "head").equals(plain.select(keys).sort("layer", "head"))
    for _, layer in made.group_by("layer"):
        assert layer.sort("row")["value"].abs().is_sorted(descending=True)
        assert sorted(layer["row"]) == list(range(1, len(layer) + 1))
