"""A trajectory: known answers, checkpoints of a run against each loaded alone, and words that say what is tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from attnscope.analysis.comparisons import comparisons
from attnscope.analysis.effects import effects
from attnscope.analysis.trajectories import SCHEMA, Point, Reference, trajectories
from attnscope.errors import AttnscopeError
from attnscope.figures.kind import Look
from attnscope.figures.kinds.trajectory import TRAJECTORY
from attnscope.figures.prose import markdown
from attnscope.figures.validation import options_of
from attnscope.figures.write import make_figure
from attnscope.models import sharing
from attnscope.notebook import Run
from attnscope.report.answer import answer
from attnscope.studies import run_study
from tests.models import tiny

TIER = "command"
PROMPTS = np.arange(30, dtype=np.int64)


def alone(prompts: Any) -> Any:
    return np.asarray(prompts)


def point(x: float, values: Any, *, series: str = "a", prompts: Any = PROMPTS, **more: Any) -> Point:
    return Point("p", series, x, f"step {x:g}", prompts, np.asarray(values, dtype=float), **more)


def test_points_are_means_over_prompts_and_changes_are_paired() -> None:
    chance = np.random.default_rng(0)
    first = chance.uniform(0, 1, 30)
    second = first + 0.1 + chance.normal(0, 0.01, 30)  # far less than prompts differ
    table = trajectories([point(0, first), point(20, second)], alone, seed=1)
    assert table.columns == list(SCHEMA)
    assert table["value"].to_list() == pytest.approx([first.mean(), second.mean()])
    assert table["n"].to_list() == [30, 30]
    assert table["against"].to_list() == [None, "step 0"]
    low, high = table["difference_low"][1], table["difference_high"][1]
    assert low < 0.1 < high
    assert high - low < 0.02 < table["high"][1] - table["low"][1]
    assert table["q"][0] is None
    assert table["q"][1] < 0.001


def test_q_is_over_all_changes_of_the_figure_and_nothing_is_found_in_nothing() -> None:
    chance = np.random.default_rng(4)
    base = chance.uniform(0, 1, 30)
    lines = [point(x, base + chance.normal(0, 0.05, 30), series=name) for name in "ab" for x in range(6)]
    table = trajectories(lines, alone)
    apart = np.stack([each.values - lines[6 * (place >= 6)].values for place, each in enumerate(lines) if place % 6], 1)
    wanted = effects(apart, clusters=PROMPTS, pools=[*"aaaaabbbbb"])
    assert table["q"].drop_nulls().to_list() == pytest.approx(wanted.q.tolist())
    assert table["q"].min() > 0.05  # type: ignore[operator]


def test_prompts_that_only_one_step_has_and_prompts_without_a_value_are_left_out() -> None:
    values = np.arange(30.0)
    gaps = np.where(PROMPTS < 3, np.nan, values + 1)
    table = trajectories([point(0, values[5:], prompts=PROMPTS[5:]), point(1, gaps), point(2, gaps * np.nan)], alone)
    assert table["n"].to_list() == [25, 27]
    assert table["difference"][1] == pytest.approx(1)


def test_clusters_widen_intervals_and_shares_stay_between_0_and_1() -> None:
    values = np.repeat(np.random.default_rng(1).uniform(0, 0.05, 10), 3)
    one = trajectories([point(0, values, bounds=(0, 1))], alone)
    two = trajectories([point(0, values, bounds=(0, 1))], lambda prompts: np.asarray(prompts) // 3)
    width = [table["high"][0] - table["low"][0] for table in (one, two)]
    assert width[1] > 1.5 * width[0]
    assert trajectories([point(0, [0.0] * 5 + [0.9], prompts=PROMPTS[:6], bounds=(0, 1))], alone)["low"][0] == 0


def test_few_prompts_have_a_mean_and_no_interval() -> None:
    table = trajectories([point(0, [0.1] * 4 + [0.9], prompts=PROMPTS[:5])], alone)
    assert table["value"][0] == pytest.approx(0.26)
    assert table["low"][0] is table["high"][0] is None


def test_changes_of_shares_end_at_minus_1_and_1_and_those_of_contrasts_at_2() -> None:
    values = np.array([0.0] * 5 + [1.0])
    ends = []
    for bounds in ((0.0, 1.0), (-1.0, 1.0), (-np.inf, np.inf)):
        lines = [
            point(x, each, prompts=PROMPTS[:6], bounds=bounds) for x, each in enumerate((values, values[::-1] * 9))
        ]
        ends.append(trajectories(lines, alone)["difference_high"][1])
    assert ends[:2] == [1, 2]
    assert ends[2] > 2


def test_what_is_tested_together_is_a_family() -> None:
    chance = np.random.default_rng(5)
    base = chance.uniform(0, 1, 30)
    lines = [
        point(x, base + chance.normal(0.01 * x, 0.05, 30), series=name, family=name) for name in "ab" for x in range(6)
    ]
    together, alone_ = trajectories(lines, alone), trajectories(lines[:6], alone)
    assert together.filter(series="a")["q"].to_list() == alone_["q"].to_list()


def words(table: pl.DataFrame) -> str:
    shown = table.with_columns(axis=pl.lit("training step"), colour=pl.lit(None, dtype=pl.String))
    return markdown(TRAJECTORY.prose(TRAJECTORY.checked(shown, "x"), Look(title="T", y="share")))


def test_the_reading_says_above_only_of_what_is_significant() -> None:
    chance = np.random.default_rng(2)
    base = chance.uniform(0, 0.5, 30)
    up, noise = base + 0.1 + chance.normal(0, 0.01, 30), base + chance.normal(0, 0.1, 30)
    risen = words(trajectories([point(0, base), point(20, noise), point(40, up)], alone))
    assert "at step 40" in risen
    assert "significantly above step 0" in risen
    same = words(trajectories([point(0, base), point(20, noise)], alone))
    assert "not significant" in same
    assert "above" not in same
    assert "below" not in same
    few = words(trajectories([point(0, base[:2], prompts=PROMPTS[:2]), point(9, up[:2], prompts=PROMPTS[:2])], alone))
    assert "too few prompts for a test" in few
    assert "above" not in few
    rounding = words(trajectories([point(0, base, floor=0.2), point(9, up, floor=0.2)], alone))
    assert "within rounding error" in rounding
    assert "above" not in rounding


def test_a_line_is_compared_with_the_other_one_even_where_that_has_no_first_value() -> None:
    chance = np.random.default_rng(4)
    one, two = (chance.uniform(0, 0.5, 30) + shift for shift in (0, 0.3))
    other = [
        point(x, two + x / 50, series="b", reference=Reference(("p", "a", x), "a") if x else None) for x in (0.0, 9.0)
    ]
    reading = words(trajectories([point(9, one), *other], alone))
    assert "Of 1 place compared with a, 1 differ" in reading
    assert "change" not in reading.partition("**b**")[2]


def test_many_lines_are_a_table_and_not_pages() -> None:
    base = np.random.default_rng(3).uniform(0, 1, 30)
    lines = [point(x, base + 0.01 * x, series=f"line {name}") for name in range(20) for x in range(20)]
    reading = words(trajectories(lines, alone))
    assert len(reading.splitlines()) < 35
    assert "Of 20 lines, the 12 whose last value is farthest" in reading


def test_a_table_of_lines_says_how_many_prompts_each_end_is_over() -> None:
    base = np.random.default_rng(3).uniform(0, 1, 30)
    lines = [
        point(x, base[:n], series=f"line {name}", prompts=PROMPTS[:n])
        for name in range(7)
        for x, n in ((0, 30), (1, 9))
    ]
    reading = words(trajectories(lines, alone))
    assert reading.count("(n = 30) at step 0") == reading.count("(n = 9) at step 1") == 7
    assert reading.count(" within prompts that have both") == 7


STUDY = """
models:
  - {{label: tuned, source: {base}, checkpoints: "{out}/checkpoint-*"}}
prompts:
  items: [{items}]
  plain: "{{question}}"
conditions:
  - none
  - {{name: filler, insert: {{repeat: "/"}}, tokens: 4, before: question}}
classes: {{digits: "re:[0-9]", question: segment:question}}
headline: [digits, {{measure: digits, difference: [filler, none]}}]
figures:
  - {{name: steps, kind: trajectory, conditions: [none]}}
  - {{name: conditions, kind: trajectory, models: [tuned]}}
  - {{name: layers, kind: trajectory, classes: [digits], by: layer, number_from: 1}}
  - {{name: bars, kind: bars, conditions: [none]}}
"""


def checkpoint(out: Path, step: int) -> None:
    folder = tiny.save_adapter(out / f"checkpoint-{step}")
    file = folder / "adapter_model.safetensors"
    chance = torch.Generator().manual_seed(step)
    changed = {name: 0.3 * torch.randn(each.shape, generator=chance) for name, each in load_file(file).items()}
    save_file(changed, file, metadata={"format": "pt"})


@pytest.fixture
def study(tmp_path: Path) -> Path:
    tiny.save_model(tmp_path / "base")
    for step in (5, 10, 100):
        checkpoint(tmp_path / "out", step)
    items = ", ".join(json.dumps({"question": f"What is {n} and {n * 7}{' again' * (n % 3)}?"}) for n in range(8))
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.format(base=tmp_path / "base", out=tmp_path / "out", items=items))
    return file


def test_a_run_of_checkpoints_has_the_numbers_of_each_loaded_alone(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    own = sharing.read_base

    def counted(*given: Any, **more: Any) -> Any:
        reads.append(given)
        return own(*given, **more)

    monkeypatch.setattr(sharing, "read_base", counted)
    run = run_study(study, tmp_path / "run")
    assert len(reads) == 1
    assert [spec.label for spec in run.study.models] == [f"tuned step {step}" for step in (0, 5, 10, 100)]
    masses = run.table("mass").collect()
    alone_file = tmp_path / "alone.yaml"
    for step in (0, 10, 100):
        adapter = "" if step == 0 else f", adapter: {tmp_path / 'out' / f'checkpoint-{step}'}"
        lines = study.read_text().splitlines()
        lines[2] = f"  - {{label: tuned step {step}, source: {tmp_path / 'base'}{adapter}}}"
        alone_file.write_text("\n".join(lines[: lines.index("figures:")]))
        single = run_study(alone_file, tmp_path / f"alone-{step}").table("mass").collect()
        assert single.equals(masses.filter(pl.col("model") == f"tuned step {step}"))


def test_a_new_checkpoint_is_all_that_is_measured_again(study: Path, tmp_path: Path) -> None:
    before = run_study(study, tmp_path / "run")
    key = before.manifest.key
    checkpoint(tmp_path / "out", 20)
    after = run_study(study, tmp_path / "run")
    assert after.manifest.key != key
    assert after.manifest.timings.cells_measured == 16
    assert [spec.step for spec in after.study.models] == [0, 5, 10, 20, 100]
    assert run_study(study, tmp_path / "run").manifest.timings == after.manifest.timings


def test_figures_report_and_comparisons_stay_small(study: Path, tmp_path: Path) -> None:
    for step in range(200, 1700, 100):
        checkpoint(tmp_path / "out", step)
    run = run_study(study, tmp_path / "run")
    names = [each.name for each in comparisons(run)]
    assert names == [
        "filler minus none, tuned step 0",
        "filler minus none, tuned step 1600",
        "tuned step 1600 minus tuned step 0, none",
        "tuned step 1600 minus tuned step 0, filler",
    ]
    figures = {figure.name: make_figure(run, options_of(figure)) for figure in run.study.figures}
    steps = figures["steps"].table
    assert steps["panel"].unique().to_list() == ["tuned"]
    assert steps["series"].unique(maintain_order=True).to_list() == ["digits", "question, without digits"]
    assert steps.filter(pl.col("series") == "digits")["x"].to_list() == [0, 5, 10, 100, *range(200, 1700, 100)]
    assert figures["conditions"].table["panel"].unique(maintain_order=True).to_list() == [
        "digits",
        "question, without digits",
    ]
    assert figures["layers"].table["panel"].unique(maintain_order=True).to_list() == ["Layer 1", "Layer 2"]
    assert figures["bars"].table["bar"].unique(maintain_order=True).to_list() == ["tuned step 0", "tuned step 1600"]
    for name in ("evidence.md", "comparisons/comparisons.md"):
        assert len((run.path / name).read_text().splitlines()) < 200
    told = answer(run)
    assert len(told) < 10
    levels = [each for each in told if "attention on digits from the last token is" in each]
    assert [each.partition(", ")[0] for each in levels[:2]] == ["In tuned step 0", "In tuned step 1600"]
    assert " times uniform attention (95 % interval " in levels[0]
    assert levels[1].endswith("17 checkpoints between: see a trajectory.")
    (others,) = [each for each in told if each.startswith("The same (")]
    assert others.startswith('The same (the base prompt minus "filler") in tuned step 1600: ')
    mass = run.table("mass").filter(pl.col("model") == "tuned step 10", pl.col("condition") == "none").collect()
    want = mass.filter(pl.col("token_class") == "digits", pl.col("measure") == "received")["mass"].mean()
    shown = steps.filter(pl.col("x") == 10, pl.col("series") == "digits")["value"][0]
    assert shown == pytest.approx(want)


def test_a_trajectory_without_checkpoints_is_refused_before_anything_runs(study: Path, tmp_path: Path) -> None:
    lines = study.read_text().splitlines()
    lines[2] = f"  - {{label: tuned, source: {tmp_path / 'base'}}}"
    study.write_text("\n".join(lines))
    with pytest.raises(AttnscopeError, match="no model has checkpoints"):
        run_study(study, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_opened_again_knows_its_checkpoints_without_their_folders(study: Path, tmp_path: Path) -> None:
    run_study(study, tmp_path / "run")
    (tmp_path / "out").rename(tmp_path / "gone")
    run = Run(tmp_path / "run")
    assert run.families == {"tuned": [f"tuned step {step}" for step in (0, 5, 10, 100)]}
    assert run.compared_models == ["tuned step 0", "tuned step 100"]


def test_trainings_that_begin_with_the_same_model_are_not_compared_there(study: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path / "again", 7)
    lines = study.read_text().splitlines()
    lines.insert(3, f'  - {{label: again, source: {tmp_path / "base"}, checkpoints: "{tmp_path}/again/checkpoint-*"}}')
    study.write_text("\n".join(lines))
    run = run_study(study, tmp_path / "run")
    assert [each.name for each in comparisons(run) if each.kind == "model" and each.one.condition == "none"] == [
        "tuned step 100 minus tuned step 0, none",
        "again step 7 minus again step 0, none",
    ]
