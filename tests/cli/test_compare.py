"""`attnscope compare`: tables in the terminal, as csv and Markdown; what can't be compared is said in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from attnscope.analysis.run import Run
from attnscope.cli.main import app
from attnscope.errors import AttnscopeError
from attnscope.figures import sentences
from attnscope.report.comparisons import CLASSES, HEADS
from attnscope.report.write import report_run
from attnscope.studies import run_study
from tests.analysis.conftest import CONDITIONS, performed, study
from tests.handmade import sealed
from tests.runs.conftest import save_tiny

TIER = "command"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "one", 1)


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    figures = [
        {"name": "parts", "kind": "decomposition", "queries": "last"},
        {
            "name": "top",
            "kind": "lines",
            "queries": "last",
            "conditions": ["none", "filler"],
            "heads": "top 3 by effect",
        },
        {
            "name": "moved",
            "kind": "heatmap",
            "measure": "moved",
            "queries": "last",
            "difference": ["sentence", "filler"],
        },
        {"name": "taken", "kind": "heatmap", "measure": "taken", "difference": ["none", "filler"]},
        {"name": "inserted", "kind": "heatmap", "measure": "inserted", "difference": ["none", "filler"]},
        {"name": "times", "kind": "heatmap", "measure": "question", "value": "enrichment", "conditions": ["none"]},
    ]
    return performed(
        study([{"label": "one", "source": str(tiny)}], figures=figures), tmp_path_factory.mktemp("cli"), "one"
    )


def compared(*given: Any) -> str:
    found = CliRunner().invoke(app, ["compare", *map(str, given)], env={"COLUMNS": "180"}, catch_exceptions=False)
    assert found.exit_code == 0
    return found.output


def test_a_run_is_compared_in_terminal_csv_and_markdown(run: Run, tmp_path: Path) -> None:
    told = compared(run.path, "--out", tmp_path / "made")
    assert "filler minus none, one" in told
    assert "n = 9 prompts, paired by prompt; heads matched by number." in told
    assert "\ninserted " in told  # with its numbers, but what is inserted is there by itself: no test
    heads = pl.read_csv(tmp_path / "made" / "heads.csv")
    classes = pl.read_csv(tmp_path / "made" / "classes.csv")
    assert (heads.columns, classes.columns) == (list(HEADS), list(CLASSES))  # as docs/run.md describes them
    assert heads["comparison"].n_unique() == classes["comparison"].n_unique() == 3
    row = classes.filter(
        pl.col("comparison") == "filler minus none, one",
        pl.col("queries") == "last",
        pl.col("quantity") == "mass",
        pl.col("token_class") == "question",
    ).row(0, named=True)
    number = sentences.with_interval(row["difference"], row["low"], row["high"])
    assert number in told
    page = (tmp_path / "made" / "comparisons.md").read_text(encoding="utf-8")
    assert f"{sentences.number(row['difference'])} (" in page
    assert len(page.splitlines()) < 60
    only = compared(run.path, "--out", tmp_path / "made", "--queries", "all")
    assert "last: mass by class" not in only


def test_the_report_has_comparisons_kinds_and_evidence(run: Run) -> None:
    page = (run.path / "report.html").read_text(encoding="utf-8")
    for words in (
        "Comparisons",
        "filler minus sentence, one",
        "Kinds of head",
        "rounding error",
        "Against eager attention",
    ):
        assert words in page
    evidence = (run.path / "evidence.md").read_text(encoding="utf-8")
    assert "4 prompts of this run, as far as the first 256 tokens of each (32 single rows" in evidence
    assert "in float64 instead of float32" in evidence
    assert "9 of 9 prompts were measured under every model and condition" in evidence
    assert "No prompt was dropped." in evidence
    assert (run.path / "comparisons" / "heads.csv").is_file()


def test_the_top_heads_are_those_whose_lines_are_furthest_apart(run: Run) -> None:
    top = pl.read_csv(run.path / "figures" / "top.csv").unique("panel", maintain_order=True)
    assert sorted(top["rank"]) == [1, 2, 3]
    assert top.sort("rank")["effect"].is_sorted(descending=True)
    assert (top["effect"] >= top["typical"]).all()


@pytest.mark.parametrize("name", ["taken", "inserted"])
def test_a_map_of_what_only_the_insertion_has_is_not_tested_and_says_so(run: Run, name: str) -> None:
    made = pl.read_csv(run.path / "figures" / f"{name}.csv")
    assert made["q"].null_count() == len(made) == 8
    assert made["low"].null_count() == 0
    reading = (run.path / "figures" / f"{name}.md").read_text()
    assert "not tested, because the edit alone changes it or one side has none of it" in reading
    control = pl.read_csv(run.path / "figures" / "moved.csv")
    assert control["q"].null_count() == 0


def test_a_map_of_enrichment_is_mass_over_expected(run: Run) -> None:
    made = pl.read_csv(run.path / "figures" / "times.csv").filter(layer=1, head=2)
    held = run.table("mass").filter(condition="none", queries="last", token_class="question", layer=1, head=2).collect()  # noqa: S106
    assert made["value"][0] == pytest.approx((held["mass"] / held["expected"]).mean())


def refused(*given: Any) -> str:
    found = CliRunner().invoke(app, ["compare", *map(str, given)])
    assert isinstance(found.exception, AttnscopeError)
    return str(found.exception)


def test_what_cant_be_compared_is_said(run: Run, tiny: Path, tmp_path: Path) -> None:
    assert "there is no run here" in refused(tmp_path)
    assert "do not differ" in refused(run.path, run.path)
    assert "near: last" in refused(run.path, "--queries", "lst")
    alone = performed(study([{"label": "one", "source": str(tiny)}], conditions=["none"]), tmp_path, "alone")
    assert "nothing to compare" in refused(alone.path)
    (tmp_path / "file").write_text("")
    assert "can't write the comparisons" in refused(run.path, "--out", tmp_path / "file")


def test_a_run_of_fewer_prompts_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    few = run_study(str(run.path / "study.yaml"), tmp_path / "few", limit=4)
    assert "with only the first 4 of its 9 prompts" in refused(run.path, few.path)


def test_the_terminal_gets_a_summary_without_broken_words(run: Run) -> None:
    found = CliRunner().invoke(app, ["compare", str(run.path)], env={"COLUMNS": "80"}, catch_exceptions=False)
    lines = found.output.splitlines()
    assert len(lines) < 30 * 3
    rows = [line for line in lines if line.startswith("question ")]
    assert rows
    assert not any(line.count("(") != line.count(")") for line in rows)
    assert all(len(line) <= 80 for line in rows)
    assert lines[-1].endswith("comparisons.md")


def test_without_a_base_prompt_only_the_control_is_compared(tiny: Path, tmp_path: Path) -> None:
    told = study([{"label": "one", "source": str(tiny)}], conditions=CONDITIONS[1:])
    run = performed(told, tmp_path)
    said = compared(run.path)
    assert "filler minus sentence, one" in said
    assert "minus none" not in said
    assert "redistribution" not in said


def test_names_are_text_whatever_they_look_like(tiny: Path, tmp_path: Path) -> None:
    name = "filler[/b] <script>alert(1)</script>"
    conditions = [CONDITIONS[0], CONDITIONS[1] | {"name": name}]
    run = performed(study([{"label": "one", "source": str(tiny)}], conditions=conditions), tmp_path)
    assert "filler[/b]" in compared(run.path)
    assert "<script>alert" not in (run.path / "report.html").read_text(encoding="utf-8")


def test_one_prompt_has_no_interval_and_says_so(tiny: Path, tmp_path: Path) -> None:
    told = study([{"label": "one", "source": str(tiny)}])
    told["prompts"]["items"] = told["prompts"]["items"][:1]
    told["figures"] = [{"name": "parts", "kind": "decomposition", "queries": "last"}, {"name": "mass", "kind": "bars"}]
    run = performed(told, tmp_path)
    said = compared(run.path)
    assert "With fewer than 6 prompts there is no interval and no test." in said
    rows = pl.read_csv(run.path / "comparisons" / "classes.csv")
    assert rows["low"].null_count() == rows["q"].null_count() == len(rows)
    reading = (run.path / "figures" / "parts.md").read_text(encoding="utf-8")
    assert " to " not in reading.split("## Numbers")[1].split("## Observations")[0]


def test_prompts_without_a_pair_are_left_out_and_counted(tiny: Path, tmp_path: Path) -> None:
    told = study([{"label": "one", "source": str(tiny)}], conditions=CONDITIONS[:2])
    told["prompts"]["items"][3]["question"] = "long " * 92  # with the filler it is longer than the model's context
    run = performed(told, tmp_path)
    assert len(run.manifest.dropped) == 1
    assert "n = 8 prompts" in compared(run.path)
    evidence = (run.path / "evidence.md").read_text(encoding="utf-8")
    assert "Dropped, one, filler, 1 prompt: the prompt has N tokens" in evidence
    assert "1 prompt that only one side has" in compared(run.path)
    assert "8 of 9 prompts were measured under every model and condition" in (run.path / "evidence.md").read_text()


def test_a_damaged_number_is_refused_and_not_averaged(tiny: Path, tmp_path: Path) -> None:
    run = performed(study([{"label": "one", "source": str(tiny)}], conditions=CONDITIONS[:2]), tmp_path)
    path = run.path / "mass.parquet"
    spoilt = pl.read_parquet(path).with_columns(
        mass=pl.when(pl.int_range(pl.len()) == 5).then(float("nan")).otherwise(pl.col("mass"))
    )
    spoilt.write_parquet(path)
    assert "table 'mass' was changed or damaged" in refused(run.path)
    sealed(run.path)
    assert "not a number" in refused(run.path)
    with pytest.raises(AttnscopeError, match="not a number"):
        report_run(run.path)


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        ({"kind": "bars", "heads": "top 6 by effect"}, "is not a choice of heads here"),
        ({"kind": "lines", "heads": "top 6 by effect", "conditions": ["none"]}, "needs two conditions"),
        ({"kind": "lines", "heads": "top six"}, "top 6 by effect"),
        ({"kind": "heatmap", "measure": "previous", "queries": "all"}, "write measures: .previous."),
        ({"kind": "heatmap", "measure": "kept", "queries": "all"}, "it is defined for a single query"),
        ({"kind": "decomposition", "queries": "all"}, "can be decomposed for a single query only"),
        ({"kind": "heatmap", "measure": "moved"}, "needs the base prompt and a condition that inserts"),
    ],
)
def test_a_figure_that_makes_no_sense_is_refused_before_anything_runs(
    tiny: Path, tmp_path: Path, figure: dict[str, Any], told: str
) -> None:
    given = study([{"label": "one", "source": str(tiny)}], figures=[{"name": "f", **figure}])
    if "moved" in str(figure):
        given["conditions"] = ["none"]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    with pytest.raises(AttnscopeError, match=told):
        run_study(str(tmp_path / "s.yaml"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
