"""What an installed package adds can be used, is offered and is named in errors like what comes with attnscope."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import yaml

from tests.models import tiny
from tests.plugin.attnscope_dummy.reach import REACH
from tests.plugin.attnscope_dummy.sharpen import Sharpen
from tests.plugin.conftest import HERE, ROOT, attnscope, offer, python

TIER = "command"

PLUS = tiny.VOCABULARY.index("+")


def study(model: object, **changes: object) -> str:
    parts = {
        "models": [{"label": "tiny", "source": str(model)}],
        "prompts": {"set": "sums", "count": 3, "seed": 1},
        "conditions": [
            "none",
            {"name": "bare", "drop": "instruction"},
            {"name": "filler", "insert": {"countdown": 3}, "tokens": 12, "before": "sum"},
            {
                "name": "both",
                "edits": [{"drop": "instruction"}, {"insert": {"countdown": 3}, "match": "filler", "before": "sum"}],
            },
        ],
        "classes": {"id": f"id:{PLUS}", "mapping": {"characters": "="}},
        "measure": {"queries": ["newest", "last"], "measures": ["received", "reach"]},
        "figures": [
            {"name": "map", "kind": "heatmap", "measure": "id", "queries": "newest"},
            {"name": "reach", "kind": "heatmap", "measure": "reach", "queries": "newest"},
            {"name": "lengths", "kind": "lengths", "least": 3},
            {"name": "kept", "kind": "heatmap", "measure": "kept", "queries": "last", "conditions": ["filler"]},
            {"name": "no-kept", "kind": "heatmap", "measure": "kept", "queries": "last", "conditions": ["bare"]},
        ],
    }
    return yaml.safe_dump({**parts, **changes}, sort_keys=False)


@pytest.fixture(scope="module")
def run(plugin: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that uses everything a study can."""
    home = tmp_path_factory.mktemp("run")
    (home / "study.yaml").write_text(study(tiny_model), encoding="utf-8")
    done = attnscope(plugin, "run", home / "study.yaml", "--out", home / "run", "--engine", "backwards")
    assert done.code == 0, done.err
    exported = attnscope(plugin, "export", home / "run", "--table", "received")
    assert exported.code == 0, exported.err
    (home / "run" / "said.txt").write_text(done.out + done.err, encoding="utf-8")
    return home / "run"


def test_a_study_gets_its_prompts_and_conditions_from_a_plugin(run: Path) -> None:
    prompts = pl.read_parquet(run / "prompts.parquet")
    texts = {condition: rows["text"].to_list() for (condition,), rows in prompts.group_by("condition")}
    assert len(texts["none"]) == 3
    assert all(text.startswith("Add up. ") and text.endswith(" =") for text in texts["none"])
    assert texts["bare"] == [text.removeprefix("Add up.") for text in texts["none"]]
    for plain, filled, both in zip(texts["none"], texts["filler"], texts["both"], strict=True):
        start = "3 2 1 0 3 2\n"
        assert filled == plain.replace("Add up. ", f"Add up. {start}")
        assert both == filled.removeprefix("Add up.")
    inserted = dict(prompts.group_by("condition").agg(pl.col("inserted").unique()).iter_rows())
    assert inserted == {"none": [0], "bare": [0], "filler": [12], "both": [12]}


def test_a_plugins_class_rule_and_query_group_have_the_numbers_they_should(run: Path) -> None:
    """Every + is one token to this tokenizer, and its mass is what the token receives."""
    keys = ["condition", "prompt", "queries", "layer", "head"]
    mass = pl.read_parquet(run / "mass.parquet").filter(pl.col("token_class") == "id").select(*keys, "mass")
    tokens = pl.read_parquet(run / "tokens.parquet").filter(token_id=PLUS).select("condition", "prompt", "position")
    received = pl.read_parquet(run / "exports" / "received.parquet").select(*keys, "received")
    want = received.join(tokens, on=["condition", "prompt"]).with_columns(
        want=pl.col("received").list.get(pl.col("position"))
    )
    both = mass.join(want, on=keys)
    assert len(both) == len(mass) == 4 * 3 * 2 * 2 * 4
    assert (both["mass"] - both["want"]).abs().max() < 1e-6  # type: ignore[operator]
    assert both.filter(queries="newest")["mass"].to_list() != both.filter(queries="last")["mass"].to_list()


def test_what_only_insertions_have_is_left_out_for_a_plugins_edit(run: Path) -> None:
    classes = pl.read_csv(run / "comparisons" / "classes.csv")
    quantities = {name: set(rows["quantity"]) for (name,), rows in classes.group_by("comparison")}
    of_insertion, *of_others = (
        next(has for name, has in quantities.items() if str(name).startswith(word) and "none" in str(name))
        for word in ("filler", "bare", "both")
    )
    assert "taken" in of_insertion
    assert of_others == [{"mass", "enrichment"}] * 2, quantities


def test_the_whole_package_on_the_page_is_the_dummy_plugin_with_one_member() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (shown,) = (tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "build" in block)
    real = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    assert shown["build-system"] == real["build-system"]
    assert shown["tool"] == real["tool"]
    (group,) = shown["project"].pop("entry-points")
    assert group in real["project"]["entry-points"]
    assert shown["project"] == {"name": "attnscope-dummy", "version": "1.0", "dependencies": ["attnscope"]}


@pytest.mark.parametrize("verb", ["report", "compare", "export"])
def test_a_run_names_the_package_that_is_not_installed(run: Path, tmp_path: Path, verb: str) -> None:
    alone = attnscope(tmp_path, verb, run)
    alone.refuses("this run was made with attnscope-dummy 1.0, which is not installed here", "install attnscope-dummy")


@pytest.mark.parametrize(
    ("used", "unknown"),
    [
        ({"measure": {"queries": ["last"], "measures": ["received", "reach"]}}, "unknown measure 'reach'"),
        ({"figures": [{"name": "lengths", "kind": "lengths"}]}, "unknown kind of figure 'lengths'"),
    ],
    ids=["measure", "figure"],
)
def test_a_report_without_the_package_is_refused_and_what_it_drew_stays(
    plugin: Path, tiny_model: Path, tmp_path: Path, used: dict[str, object], unknown: str
) -> None:
    own = {"set": "problems", "count": 2}
    parts = {"prompts": own, "conditions": ["none"], "classes": {}, "measure": {"queries": ["last"]}, "figures": []}
    (tmp_path / "study.yaml").write_text(study(tiny_model, **{**parts, **used}), encoding="utf-8")
    done = attnscope(plugin, "run", tmp_path / "study.yaml", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    attnscope(tmp_path, "report", tmp_path / "run").refuses("attnscope-dummy 1.0", unknown, "install attnscope-dummy")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_plugins_measure_is_proven_stored_drawn_and_offered(run: Path, plugin: Path) -> None:
    heads = pl.read_parquet(run / "heads.parquet").filter(pl.col("measure") == "reach")
    assert len(heads) == 4 * 3 * 2 * 2 * 4
    exported = pl.read_parquet(run / "exports" / "received.parquet").filter(pl.col("queries") == "last")
    keys = ["condition", "prompt", "layer", "head"]
    both = heads.filter(pl.col("queries") == "last").join(exported, on=keys)
    for value, received in both.select("value", "received").iter_rows():
        last = len(received) - 1
        assert value == pytest.approx(sum((last - key) * share for key, share in enumerate(received)), abs=1e-3)
    assert (run / "figures" / "reach.png").is_file()
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    evidence = manifest["models"]["tiny"]["evidence"]
    assert evidence["measures"]["reach"] < 1e-3
    assert manifest["engine"] == "backwards"
    code = (
        "from attnscope.analysis.run import Run; from attnscope.explorer.views.overview import run_facts\n"
        f"print([each.name for each in run_facts('x', Run({str(run)!r})).measures])"
    )
    assert "'reach'" in python(plugin, code).out


def test_a_plugins_backend_is_chosen_where_it_can_be_and_named_in_the_evidence(run: Path, plugin: Path) -> None:
    evidence = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["models"]["tiny"]["evidence"]
    assert set(evidence["backends"].values()) == {"careful"}


def test_a_plugins_figure_is_drawn_with_its_options(run: Path) -> None:
    table = pl.read_csv(run / "figures" / "lengths.csv")
    assert set(table["condition"]) == {"none", "bare", "filler", "both"}
    assert "The longest prompt has" in (run / "figures" / "lengths.md").read_text(encoding="utf-8")


WRONG_BACKEND = """\
from attnscope.attention.backends import Backend
from attnscope.attention.backends.blocked import BLOCKED

class Wrong(Backend):
    name, priority = "wrong", 100

    def unsupported(self, call, view, ask):
        return BLOCKED.unsupported(call, view, ask)

    def attend(self, call, view, ask):
        result = BLOCKED.attend(call, view, ask)
        return type(result)({name: 1.001 * values for name, values in result.values.items()}, result.output)

THING = Wrong()
"""


def test_a_backend_that_is_a_little_wrong_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    site = offer(tmp_path, "attnscope.backends", "wrong:THING", WRONG_BACKEND)
    refused = attnscope(site, "measure", "a # b", "--model", tiny_model)
    refused.refuses("the backend 'wrong' is 1.0e-03 off eager attention", "package wrong", "leave it out")


SHARE = """
from attnscope.measures import Measure
THING = Measure(name="share", meaning="A share.", unit="", block=lambda w, q, k: TIMES * w.sum(-1),
                reference=lambda matrix: TIMES * matrix.sum(-1))
"""


def test_a_measure_whose_code_changes_is_measured_again(tiny_model: Path, tmp_path: Path) -> None:
    """Whoever writes a plugin changes its code without changing its version."""
    site = offer(tmp_path / "site", "attnscope.measures", "share:THING", SHARE.replace("TIMES", "1.0"))
    parts = {
        "models": [{"label": "tiny", "source": str(tiny_model)}],
        "prompts": {"items": [{"text": "a # b"}, {"text": "c * d"}], "plain": "{text}"},
        "classes": {"hash": "#"},
        "measure": {"measures": ["received", "share"]},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(parts), encoding="utf-8")
    command = ("run", tmp_path / "study.yaml", "--out", tmp_path / "run")

    def shares() -> list[float]:
        return pl.read_parquet(tmp_path / "run" / "heads.parquet").filter(measure="share")["value"].unique().to_list()

    assert "measured 2 cells" in attnscope(site, *command).out
    assert shares() == pytest.approx([1.0] * len(shares()), abs=1e-5)
    assert "nothing to do" in attnscope(site, *command).out
    (site / "share.py").write_text(SHARE.replace("TIMES", "0.5"), encoding="utf-8")
    assert "measured 2 cells" in attnscope(site, *command).out
    assert shares() == pytest.approx([0.5] * len(shares()), abs=1e-5)
    assert any("share 1.0" in line for line in (tmp_path / "run" / "evidence.md").read_text().splitlines())


def test_a_class_rule_whose_code_changes_gives_new_masses(tiny_model: Path, tmp_path: Path) -> None:
    code = (HERE / "attnscope_dummy" / "token_id.py").read_text(encoding="utf-8").replace("TOKEN_ID", "THING")
    site = offer(tmp_path / "site", "attnscope.class_rules", "rule:THING", code)
    parts = {
        "models": [{"label": "tiny", "source": str(tiny_model)}],
        "prompts": {"items": [{"text": "a + b"}], "plain": "{text}"},
        "classes": {"plus": f"id:{PLUS}"},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(parts), encoding="utf-8")
    command = ("run", tmp_path / "study.yaml", "--out", tmp_path / "run")

    def masses() -> np.ndarray:
        mass = pl.read_parquet(tmp_path / "run" / "mass.parquet").filter(pl.col("token_class") == "plus")
        return mass.sort("queries", "layer", "head")["mass"].to_numpy()

    assert attnscope(site, *command).code == 0
    before = masses()
    (site / "rule.py").write_text(code.replace("token.id in", "token.id not in"), encoding="utf-8")
    again = attnscope(site, *command)
    assert again.code == 0, again.err
    assert "nothing to measure" in again.out
    np.testing.assert_allclose(masses(), 1 - before, atol=1e-6)


def test_a_figure_of_what_only_insertions_have_is_refused_for_a_plugins_edit(run: Path) -> None:
    assert (run / "figures" / "kept.svg").exists()
    assert not (run / "figures" / "no-kept.svg").exists()
    lines = (run / "said.txt").read_text().splitlines()
    assert any("no-kept" in line and "'kept' is not defined for bare" in line for line in lines)


def test_a_plugins_query_group_can_be_measured_in_python(plugin: Path, tiny_model: Path) -> None:
    code = (
        "import attnscope, numpy as np\n"
        f"lens = attnscope.load({str(tiny_model)!r})\n"
        "named = lens.measure('a # b * c', queries=['newest'])\n"
        "given = lens.measure('a # b * c', queries=['mine'], rows={'mine': [6, 7, 8]})\n"
        "print(np.abs(named.received.values - given.received.values).max())\n"
    )
    done = python(plugin, code)
    assert done.code == 0, done.err
    assert float(done.out) == 0


def test_a_caption_says_what_a_plugins_query_group_is(run: Path) -> None:
    assert "the last three tokens" in (run / "figures" / "map.svg").read_text(encoding="utf-8").replace("\u00a0", " ")


def test_the_schema_offers_what_a_plugin_adds_and_the_built_in_one_does_not(plugin: Path, tmp_path: Path) -> None:
    with_plugin, without = (attnscope(site, "schema") for site in (plugin, tmp_path))
    assert with_plugin.code == without.code == 0, with_plugin.err
    for word in ('"token_id"', '"drop"', '"countdown"', '"newest"', '"sums"'):
        assert word in with_plugin.out
        assert word not in without.out
    json.loads(with_plugin.out)


def test_generated_pages_are_the_same_with_a_plugin_installed(plugin: Path, tmp_path: Path) -> None:
    script = ROOT / "scripts" / "reference.py"
    code = f"import runpy; print(*runpy.run_path({str(script)!r})['pages']().values(), sep='')"
    with_plugin, without = (python(site, code) for site in (plugin, tmp_path))
    assert without.code == 0, without.err
    assert "countdown" in without.out  # the page on extending shows the plugin's files
    assert with_plugin.out == without.out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": {"x": "idd:42"}}, ["unknown class rule 'idd:'", "near: id"]),
        ({"classes": {"x": "id:forty"}}, ["ids are whole numbers"]),
        ({"classes": {"x": {"tokenid": "42"}}}, ["unknown key 'tokenid'", "near: token_id"]),
        ({"conditions": [{"name": "x", "drp": "sum"}]}, ["unknown key 'drp'", "near: drop"]),
        ({"conditions": [{"name": "x", "drop": "summ"}]}, ["no segment 'summ'", "near: sum"]),
        ({"conditions": [{"name": "x", "insert": {"cuntdown": 3}, "before": "sum"}]}, ["near: countdown"]),
        ({"measure": {"queries": ["newst"]}}, ["unknown query group 'newst'", "near: newest"]),
        ({"prompts": {"set": "sum"}}, ["unknown set of prompts 'sum'", "near: sums"]),
        ({"measure": {"measures": ["rech"]}, "figures": []}, ["unknown measure 'rech'", "near: reach"]),
        ({"figures": [{"name": "x", "kind": "lenghts"}]}, ["unknown kind of figure 'lenghts'", "near: lengths"]),
        ({"figures": [{"name": "x", "kind": "lengths", "lest": 3}]}, ["lengths has no option 'lest'", "near: least"]),
    ],
)
def test_an_error_names_what_a_plugin_has(
    changes: dict[str, object], words: list[str], plugin: Path, tmp_path: Path
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(study("smollm2-135m-instruct", **{"figures": [], **changes}), encoding="utf-8")
    attnscope(plugin, "tokens", file).refuses(*words)


def test_measures_and_attention_edits_of_a_plugin_are_members_of_their_families(plugin: Path) -> None:
    code = (
        "from attnscope.edits.attention import ATTENTION_EDITS; from attnscope.measures import MEASURES\n"
        "from attnscope.errors import AttnscopeError\n"
        "sharpen = ATTENTION_EDITS.members['sharpen'](sharpen=2, layers=[1])\n"
        "print(MEASURES.members['reach'].unit, sharpen.applies_to(1))\n"
        "for family, name in ((MEASURES, 'rech'), (ATTENTION_EDITS, 'sharpn')):\n"
        "    try: family.find(name, 'here')\n"
        "    except AttnscopeError as error: print(error)\n"
    )
    done = python(plugin, code)
    assert done.code == 0, done.err
    first, measure, edit = done.out.splitlines()
    assert first == "tokens True"
    assert "unknown measure 'rech'" in measure
    assert "near: reach" in measure
    assert "near: sharpen" in edit


def test_the_plugins_measure_and_attention_edit_do_what_they_say() -> None:
    rows = torch.rand(3, 6, 6).tril()
    matrix = rows / rows.sum(-1, keepdim=True)
    positions = torch.arange(6)
    assert REACH.block
    assert REACH.reference
    torch.testing.assert_close(REACH.block(matrix, positions, positions), REACH.reference(matrix))
    sharp = Sharpen(sharpen=2).weights(matrix, 0, range(3), positions, positions)
    torch.testing.assert_close(sharp.sum(-1), matrix.sum(-1))
    assert (sharp.amax(-1) >= matrix.amax(-1)).all()


def test_the_page_on_extending_shows_every_module_of_the_plugin_as_it_is() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    offered = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert len(offered) >= 7
    for group, members in offered.items():
        for value in members.values():
            module = value.partition(":")[0].rpartition(".")[2]
            code = (HERE / "attnscope_dummy" / f"{module}.py").read_text(encoding="utf-8")
            assert f"```python\n{code}```" in page, module
        assert f"| `{group}` | 2 |" in page, group
