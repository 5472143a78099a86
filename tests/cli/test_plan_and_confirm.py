"""`attnscope plan` and `confirm`: what a study can find, and what holds of what it found."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import regex
import yaml

from attnscope.analysis.power import pilots
from attnscope.analysis.run import Run as OpenRun
from attnscope.confirmation import TABLE
from tests.analysis.conftest import CONDITIONS, performed, study
from tests.analysis.test_placebo import items
from tests.cli.conftest import Run
from tests.runs.conftest import save_tiny

TIER = "command"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "one", 1)


def written(home: Path, tiny: Path, **changes: object) -> Path:
    path = home / "study.yaml"
    prompts = {"items": items(24), "chat": "{intro}\n{question}"}
    content = study([{"label": "one", "source": str(tiny)}], **{"prompts": prompts, **changes})
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def test_a_plan_says_what_can_be_found(run: Run, tiny: Path, tmp_path: Path) -> None:
    said = run("plan", written(tmp_path, tiny), "--size", "0.5")
    assert said.code == 0, said.err
    assert "24 prompts; 8 heads x 4 classes" in said.out
    assert "smallest q of a single head" in said.out
    assert "80 %" in said.out


def test_a_pilot_gives_the_sizes_of_this_study(run: Run, tiny: Path, tmp_path: Path) -> None:
    path, out = written(tmp_path, tiny), tmp_path / "pilot"
    said = run("plan", path, "--pilot", "8", "--out", out)
    assert said.code == 0, said.err
    assert "from the pilot" in said.out
    pair = [{"label": name, "source": str(tiny)} for name in ("one", "two")]
    conditions = [*CONDITIONS[:2], {**CONDITIONS[2], "control": "redraw"}]
    found = performed(study(pair, conditions=conditions), tmp_path, "both")
    names = {model: {each.comparison for each in pilots(found.compare(), model, "last")} for model in ("one", "two")}
    assert any("two minus one" in name for name in names["two"])
    assert names["one"]
    assert not any("two" in name for name in names["one"])
    assert not any("placebo" in name for every in names.values() for name in every)  # there is nothing to look for
    assert len(OpenRun(out).prompts("one", "none")) == 8


def test_a_plan_counts_clusters_and_refuses_sizes_that_are_none(run: Run, tiny: Path, tmp_path: Path) -> None:
    def by_topic(most: int) -> dict[str, object]:
        rows = [{**each, "topic": f"t{max(0, n - most + 1)}"} for n, each in enumerate(items(16))]
        return {"items": rows, "chat": "{intro}\n{question}", "cluster": "topic"}

    said = run("plan", written(tmp_path, tiny, prompts=by_topic(5)))
    assert "16 prompts in 12 clusters" in said.out
    assert "how many clusters" in said.out
    assert "a few clusters have most of the prompts" in run("plan", written(tmp_path, tiny, prompts=by_topic(9))).out
    path = written(tmp_path, tiny)
    for size in ("0", "-0.5", "nan", "inf"):
        run("plan", path, "--size", size).refuses("can't be the size of an effect", "--size")
    assert run("plan", path, "--pilot", "2").code == 2
    said = run("plan", path, "--pilot", "100", "--out", tmp_path / "pilot")
    assert "only 24 prompts" in said.err


def test_a_pilot_of_few_clusters_says_that_it_says_nothing(run: Run, tiny: Path, tmp_path: Path) -> None:
    rows = [{**each, "topic": f"t{n // 4}"} for n, each in enumerate(items(32))]
    path = written(tmp_path, tiny, prompts={"items": rows, "chat": "{intro}\n{question}", "cluster": "topic"})
    said = run("plan", path, "--pilot", "8", "--out", tmp_path / "pilot")
    assert said.code == 0, said.err
    why = "The pilot says nothing about sizes: its prompts are of 2 clusters, and 6 are the fewest."
    assert why in " ".join(said.out.split())


def test_a_dry_run_says_so_too_and_warns_of_copies(run: Run, tiny: Path, tmp_path: Path) -> None:
    copies = [{**each, "intro": f"Note {n}."} for n in range(2) for each in items(8)]
    prompts = {"items": copies, "chat": "{intro}\n{question}"}
    said = run("run", written(tmp_path, tiny, prompts=prompts), "--dry-run")
    assert said.code == 0, said.err
    assert "smallest q of a single head" in said.out
    assert "near copies" in said.err
    assert "cluster: question" in said.err


def test_what_a_run_found_is_tested_on_prompts_it_has_not_seen(run: Run, tiny: Path, tmp_path: Path) -> None:
    everything = items(48)
    path = written(tmp_path, tiny, prompts={"items": everything[:24], "chat": "{intro}\n{question}"})
    assert run("run", path, "--out", tmp_path / "run").code == 0
    run("confirm", tmp_path / "run").refuses("there are no others to draw", "--prompts")
    more = tmp_path / "more.jsonl"
    more.write_text("\n".join(json.dumps(each) for each in everything), encoding="utf-8")
    said = run("confirm", tmp_path / "run", "--prompts", more, "--out", tmp_path / "again")
    assert said.code == 0, said.err
    assert "fresh: 24 prompts" in said.out
    assert "heads held" in said.out
    used = {tuple(each.values()) for each in everything[:24]}
    fresh = yaml.safe_load((tmp_path / "again" / "study.yaml").read_text(encoding="utf-8"))["prompts"]["items"]
    assert len(fresh) == 24
    assert not used & {(each["intro"], each["question"]) for each in fresh}
    table = pl.read_csv(tmp_path / "again" / TABLE)
    found = OpenRun(tmp_path / "run").compare()
    heads = sum(int(each.heads.filter(pl.col("quantity") == "mass")["sure"].sum()) for each in found)
    assert len(table.filter(pl.col("of") == "head")) == heads > 0
    held = table.filter(pl.col("held"))
    assert (held["difference"].sign() == held["again"].sign()).all()
    more.write_text("\n".join(json.dumps(each) for each in everything[:24]), encoding="utf-8")
    run("confirm", tmp_path / "run", "--prompts", more).refuses("no prompts left that the run has not used")
    more.write_text("\n".join(json.dumps(each) for each in everything), encoding="utf-8")
    before = (tmp_path / "run" / "study.yaml").read_bytes()
    run("confirm", tmp_path / "run", "--prompts", more, "--out", tmp_path / "run").refuses("take the place", "--out")
    assert (tmp_path / "run" / "study.yaml").read_bytes() == before


def test_a_set_gives_fresh_prompts_by_itself(run: Run, tiny: Path, tmp_path: Path) -> None:
    prompts = {"set": "problems", "count": 30, "chat": "{instruction}\n{question}"}
    path = written(tmp_path, tiny, prompts=prompts)
    assert run("run", path, "--out", tmp_path / "run").code == 0
    said = run("confirm", tmp_path / "run")
    assert said.code == 0, said.err
    both = [
        set(OpenRun(folder).table("prompts").filter(condition="none").collect()["text"])
        for folder in (tmp_path / "run", tmp_path / "run-confirmed")
    ]
    assert not both[0] & both[1]
    assert len(both[1]) == 30
    assert regex.search("[0-9]+ of these clusters are in the run as well|all of these clusters", said.out)
    few = run("confirm", tmp_path / "run", "--count", "2", "--out", tmp_path / "few")
    assert "too few for any test" in few.out


def test_where_a_run_used_all_of_a_set_its_random_text_is_drawn_anew(run: Run, tiny: Path, tmp_path: Path) -> None:
    prompts = {"set": "problems", "count": 78, "chat": "{instruction}\n{question}"}
    path = written(tmp_path, tiny, prompts=prompts, conditions=[CONDITIONS[0], CONDITIONS[1], CONDITIONS[2]])
    assert run("run", path, "--out", tmp_path / "run").code == 0
    said = run("confirm", tmp_path / "run", "--count", "30")
    assert said.code == 0, said.err
    assert "the same ones with the random text drawn anew" in said.out
    texts = [
        OpenRun(folder).table("prompts").filter(condition="sentence").collect()["text"].to_list()
        for folder in (tmp_path / "run", tmp_path / "run-confirmed")
    ]
    assert not set(texts[0]) & set(texts[1])  # other sentences
