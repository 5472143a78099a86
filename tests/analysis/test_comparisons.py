"""What a run is compared in: differences within prompts, dilution and redistribution, above what rounding makes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers

from attnscope.analysis.compared import compare
from attnscope.analysis.comparisons import Comparison, comparisons
from attnscope.analysis.effects import effects
from attnscope.analysis.insertion import insertion, untouched_classes
from attnscope.analysis.matching import BY_BEHAVIOUR, BY_NUMBER, matched
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.analysis.two_runs import between, differing
from attnscope.errors import AttnscopeError
from attnscope.records import Record
from attnscope.runs.measuring import measure_cells
from tests.analysis.conftest import CONDITIONS, EVERY_PATTERN, performed, study
from tests.handmade import exported
from tests.runs.conftest import save_tiny
from tests.tolerances import EXACT, NATS, SHALLOW, SUMMED

TIER = "command"

QUESTION = {"queries": "last", "token_class": "question"}


def named(run: Run, name: str) -> Comparison:
    return next(each for each in comparisons(run) if each.name == name)


def test_a_study_implies_its_comparisons(run: Run) -> None:
    names = [each.name for each in comparisons(run)]
    assert names == ["filler minus none, one", "sentence minus none, one", "filler minus sentence, one"]


def test_a_difference_in_mass_is_the_one_in_the_table(run: Run) -> None:
    found = compare(named(run, "filler minus none, one")).heads.filter(quantity="mass", **QUESTION)
    masses = run.table("mass").filter(**QUESTION).sort("prompt", "layer", "head").collect()
    one, two = (masses.filter(condition=name)["mass"].to_numpy().reshape(9, 8) for name in ("none", "filler"))
    assert found["difference"].to_numpy() == pytest.approx((two - one).mean(0))
    assert found["one"].to_numpy() == pytest.approx(one.mean(0))
    every = compare(named(run, "filler minus none, one")).heads.filter(quantity="mass", queries="last")
    classes = every["token_class"].unique(maintain_order=True).to_list()
    table = run.table("mass").filter(pl.col("queries") == "last").sort("prompt", "layer", "head").collect()
    sides = [
        np.stack([table.filter(condition=name, token_class=each)["mass"].to_numpy().reshape(9, 8) for each in classes])
        for name in ("none", "filler")
    ]
    family = effects((sides[1] - sides[0]).transpose(1, 0, 2).reshape(9, -1), seed=5)  # tested together
    assert found["low"].to_numpy() == pytest.approx(family.low.reshape(-1, 8)[classes.index("question")])
    assert found["p"].to_numpy() == pytest.approx(family.p.reshape(-1, 8)[classes.index("question")])
    inserted = compare(named(run, "filler minus none, one")).heads.filter(quantity="mass", queries="last")
    assert inserted.filter(pl.col("token_class") == "inserted")["q"].null_count() == 8


def test_attention_that_is_uniform_changes_in_mass_but_not_in_enrichment_and_only_dilutes(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own uniform attention put in the place of what was measured."""

    def uniform(*asked: Any) -> list[Record]:
        return [
            replace(record, arrays={**record.arrays, "received": record.uniform().values.astype(np.float32)})
            for record in measure_cells(*asked)
        ]

    monkeypatch.setattr("attnscope.runs.measuring.measure_cells", uniform)
    made = performed(study([{"label": "one", "source": str(tiny)}]), tmp_path).path
    for comparison in comparisons(Run(made)):
        found = compare(comparison).heads
        masses = found.filter(quantity="mass", **QUESTION)
        assert comparison.kind == "control" or (masses["difference"] < -0.01).all()
        assert found.filter(quantity="enrichment")["difference"].drop_nulls().abs().max() < NATS * SUMMED  # type: ignore[operator]
        for quantity in ("redistribution", "moved"):
            assert found.filter(quantity=quantity)["difference"].abs().max() < SUMMED  # type: ignore[operator]


def test_a_change_is_dilution_plus_redistribution(run: Run) -> None:
    keys = ["token_class", "layer", "head"]
    for comparison in comparisons(run):
        heads = compare(comparison).heads
        parts = [
            heads.filter(quantity=name).select(*keys, "queries", pl.col("difference").alias(name))
            for name in ("dilution", "redistribution")
        ]
        both = parts[0].join(parts[1].drop("queries"), on=keys)
        assert len(both) == 3 * 8  # of question, marks and other; not of what is inserted
        assert "inserted" not in set(both["token_class"])
        assert set(both["queries"]) == {"last"}  # there is one factor for a query
        masses = heads.filter(queries="last", quantity="mass").join(both, on=keys)
        assert len(masses) == len(both)
        apart = masses["difference"] - masses["dilution"] - masses["redistribution"]
        assert apart.abs().max() < EXACT  # type: ignore[operator]


def test_what_can_only_go_one_way_is_not_tested_against_the_base_prompt(run: Run) -> None:
    base = compare(named(run, "filler minus none, one"))
    control = compare(named(run, "filler minus sentence, one"))
    for quantity in ("dilution", "kept", "moved", "taken"):
        for table in (base.heads, base.overall):
            held = table.filter(quantity=quantity)
            assert held["q"].null_count() == held["sure"].null_count() == len(held) > 0
        assert base.overall.filter(quantity=quantity)["up"].null_count() > 0
        assert control.heads.filter(quantity=quantity)["q"].null_count() == 0
    assert base.heads.filter(quantity="redistribution")["q"].null_count() == 0


def test_the_split_is_the_one_by_hand(run: Run) -> None:
    found = insertion(run, "one", "none", "filler", "last")
    where = {"model": "one", "queries": "last", "layer": 1, "head": 2, "prompt": 4}
    before, after = (
        exported(run).filter(condition=name, **where)["received"][0].to_numpy() for name in ("none", "filler")
    )
    tokens = run.table("tokens").filter(model="one", condition="filler", prompt=4).collect()
    base = tokens["base_position"]
    shared = [(place, int(other)) for place, other in enumerate(base) if other is not None]
    c = np.array([after[place] for place, _ in shared], dtype=float)
    b = np.array([before[other] for _, other in shared], dtype=float)
    place = found.prompts.index(4)
    assert found.kept[place, 1, 2] == pytest.approx(c.sum() / b.sum(), rel=SUMMED)
    assert found.moved[place, 1, 2] == pytest.approx(np.abs(c / c.sum() - b / b.sum()).sum() / 2, rel=SUMMED)
    inserted = (tokens["segment"] == "inserted").to_numpy()
    assert found.taken[place, 1, 2] == pytest.approx(after[inserted].sum(), rel=SUMMED)
    assert untouched_classes(run, "one", "filler") == ["question", "marks", "other"]


def test_an_insertion_that_only_dilutes_moves_nothing() -> None:
    from attnscope.analysis.insertion import _split
    from attnscope.analysis.received import PromptAttention

    before = np.array([[[0.5, 0.3, 0.2]]])
    after = np.array([[[0.25, 0.4, 0.1, 0.15, 0.1]]])  # half is kept, tokens 1 and 3 are inserted
    one = PromptAttention("none", 0, before, np.array([0, 1, 2]), np.zeros(3, dtype=bool))
    two = PromptAttention("filler", 0, after, np.array([0, -1, 2, 1, -1]), np.array([False, True, False, False, True]))
    had, has, moved, taken = _split(one, two)
    assert (had.item(), has.item(), moved.item(), taken.item()) == pytest.approx((1.0, 0.5, 0.0, 0.5))


def permuted(folder: Path, source: Path, order: list[int]) -> Path:
    """The same model with the heads of every layer under other numbers."""
    model = transformers.LlamaForCausalLM.from_pretrained(source)
    width = model.config.hidden_size // 4
    rows = torch.cat([torch.arange(head * width, (head + 1) * width) for head in order])
    for layer in model.model.layers:
        attention: Any = layer.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(attention, name).weight.data = getattr(attention, name).weight.data[rows].clone()
        attention.o_proj.weight.data = attention.o_proj.weight.data[:, rows].clone()
    model.save_pretrained(folder)
    return folder


def test_heads_under_other_numbers_are_found_by_behaviour_and_a_fine_tune_by_number(tmp_path: Path) -> None:
    from tests.models import tiny
    from tests.runs.conftest import CHAT

    tiny.save_model(
        tmp_path / "one", tiny.llama_config(num_key_value_heads=4, initializer_range=0.3, max_position_embeddings=512)
    )
    order = [2, 3, 1, 0]
    permuted(tmp_path / "other", tmp_path / "one", order)
    tuned = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "one")
    torch.manual_seed(3)
    for weight in tuned.parameters():
        weight.data += 0.01 * torch.randn_like(weight)
    tuned.save_pretrained(tmp_path / "tuned")
    for name in ("one", "other", "tuned"):
        tokenizer = tiny.tokenizer()
        tokenizer.chat_template = CHAT
        tokenizer.save_pretrained(tmp_path / name)
    models = [{"label": name, "source": str(tmp_path / name)} for name in ("one", "other", "tuned")]
    run = performed(study(models, conditions=["none"], measure={"queries": ["last", "all"]}), tmp_path)
    other = matched(Side(run, "one", "none"), Side(run, "other", "none"))
    assert other.method == BY_BEHAVIOUR
    pairs = {(int(layer), int(head)): int(two) for layer, head, two in zip(*other.one, other.two[1], strict=True)}
    assert pairs == {(layer, order[place]): place for layer in range(2) for place in range(4)}
    assert matched(Side(run, "one", "none"), Side(run, "tuned", "none")).method == BY_NUMBER
    same = compare(Comparison("model", Side(run, "one", "none"), Side(run, "other", "none"))).heads
    assert same["difference"].abs().max() < SHALLOW  # type: ignore[operator]


def test_layers_are_matched_by_relative_depth(tmp_path: Path) -> None:
    from tests.models import tiny
    from tests.runs.conftest import CHAT

    for name, layers in (("short", 2), ("long", 6)):
        config = tiny.llama_config(num_hidden_layers=layers, initializer_range=0.3, max_position_embeddings=512)
        tiny.save_model(tmp_path / name, config)
        tokenizer = tiny.tokenizer()
        tokenizer.chat_template = CHAT
        tokenizer.save_pretrained(tmp_path / name)
    models = [{"label": name, "source": str(tmp_path / name)} for name in ("short", "long")]
    figures = [{"name": "map", "kind": "heatmap", "measure": "question", "difference": ["short", "long"]}]
    run = performed(study(models, conditions=["none"], figures=figures), tmp_path)
    found = compare(comparisons(run)[0]).heads.select("layer", "layer_two").unique().sort("layer")
    assert found.rows() == [(0, 0), (1, 3)]
    reading = (run.path / "figures" / "map.md").read_text(encoding="utf-8")
    assert "layers matched by relative depth, heads by behaviour" in reading


def test_rounding_is_measured_and_makes_no_effect(tiny: Path, tmp_path: Path) -> None:
    """A model compared with itself in half precision: every difference is rounding, and none is called sure."""
    models = [{"label": "full", "source": str(tiny)}, {"label": "half", "source": str(tiny), "dtype": "bfloat16"}]
    run = performed(study(models, conditions=["none"]), tmp_path)
    full, half = run.noise("full", "last"), run.noise("half", "last")
    assert full is not None
    assert half is not None
    assert full.max() < SHALLOW < 20 * SHALLOW < half.max() < 0.2
    sample = run.manifest.models["half"].sample
    assert sample is not None
    assert sample.noise.reference == "float32"
    heads = compare(comparisons(run)[0]).heads.filter(quantity="mass")
    assert heads["difference"].abs().max() > SHALLOW  # type: ignore[operator]
    assert (heads["difference"].abs() <= heads["floor"]).mean() >= 0.9  # type: ignore[operator]
    assert heads["sure"].sum() <= 0.05 * len(heads)
    assert not compare(comparisons(run)[0]).overall.filter(quantity="mass")["sure"].any()


@pytest.fixture(scope="module")
def second(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes runs that differ from the first in what is given."""
    home = tmp_path_factory.mktemp("second")
    models = [{"label": "one", "source": str(tiny)}]
    patterns = EVERY_PATTERN

    def made(name: str, **changes: Any) -> Run:
        return performed(study(models, measure=patterns) | changes, home, name)

    return made


@pytest.mark.model
def test_two_runs_that_differ_in_one_thing_are_compared_and_others_refused(
    run: Run, second: Any, tmp_path: Path, tiny: Path
) -> None:
    again = second("again")
    assert differing(run, again) == []
    with pytest.raises(AttnscopeError, match="do not differ"):
        between(run, again)
    longer = [CONDITIONS[0], CONDITIONS[1] | {"tokens": 30}]
    edited = second("edited", conditions=longer)
    assert differing(run, edited) == ["conditions"]
    found = between(run, edited)
    assert [(each.one.condition, each.two.condition, each.paired) for each in found] == [("filler", "filler", True)]
    assert compare(found[0]).overall.filter(quantity="taken", queries="last")["difference"][0] != 0
    other = save_tiny(tmp_path / "other", 8)
    models = second("models", models=[{"label": "else", "source": str(other)}])
    assert differing(run, models) == ["models"]
    pairs = between(run, models)
    assert {(each.one.model, each.two.model, each.paired) for each in pairs} == {("one", "else", True)}
    with pytest.raises(AttnscopeError, match="differ in models and conditions"):
        between(edited, models)
    with pytest.raises(AttnscopeError, match="differ in measure"):
        between(run, second("measure", measure={"queries": ["last"]}))
    assert differing(run, second("entropy", measure={"queries": ["last", "all"], "measures": ["entropy"]})) == []
    classes = study([])["classes"]
    turned = second("turned", classes=dict(reversed(classes.items())))
    assert differing(run, turned) == ["classes"]  # the first that claims a character has it


def test_runs_of_other_prompts_are_compared_without_pairs(run: Run, second: Any) -> None:
    items = [{"intro": f"Something else, {number}.", "question": f"Why # {number}?"} for number in range(7)]
    other = second("prompts", prompts={"items": items, "chat": "{intro}\n{question}"})
    found = between(run, other)
    assert not any(each.paired for each in found)
    heads = compare(found[0]).heads.filter(quantity="mass", **QUESTION)
    masses = [
        each.table("mass").filter(**QUESTION, condition="none", layer=0, head=1).collect() for each in (run, other)
    ]
    want = masses[1]["mass"].mean() - masses[0]["mass"].mean()  # type: ignore[operator]
    assert heads.filter(layer=0, head=1)["difference"][0] == pytest.approx(want)
    assert heads["n"].unique().to_list() == [7]


def test_a_condition_that_no_prompt_could_be_made_for_is_not_compared(tiny: Path, tmp_path: Path) -> None:
    conditions = [*CONDITIONS, {"name": "long", "insert": {"repeat": "/"}, "tokens": 600, "before": "question"}]
    config = save_tiny(tmp_path / "two", 2) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 1024}))
    both = [{"label": label, "source": str(source)} for label, source in (("one", tiny), ("two", tmp_path / "two"))]
    run = performed(study(both, conditions=conditions), tmp_path)
    names = [each.name for each in comparisons(run)]
    assert {"filler minus none, one", "sentence minus none, one", "long minus none, two"} <= set(names)
    assert "long minus none, one" not in names
    evidence = (run.path / "evidence.md").read_text(encoding="utf-8")
    assert "one, long: NO PROMPT." in evidence
    assert "0 of 9 prompts were measured under every model and condition." in evidence


def test_the_order_of_heads_without_effect_is_not_called_reliable() -> None:
    from attnscope.analysis.ranking import reliability

    chance = np.random.default_rng(0)
    spread = np.exp(chance.normal(0, 2, 270))  # heads vary, some much more than others
    assert (reliability(chance.normal(0, 1, (40, 270)) * spread, 0) or 0) < 0.35
    real = chance.normal(0, 1, 270)
    assert (reliability(real + chance.normal(0, 1, (40, 270)), 0) or 0) > 0.9


def test_a_run_cut_short_is_compared_on_the_prompts_both_have(run: Run, tiny: Path, tmp_path: Path) -> None:
    from attnscope.studies import run_study

    again = run_study(str(run.path.with_suffix(".yaml")), tmp_path / "cut", limit=6)
    assert differing(run, again) == []
    content = study([{"label": "one", "source": str(tiny)}], conditions=[CONDITIONS[0], CONDITIONS[1] | {"tokens": 30}])
    content["measure"]["measures"] = EVERY_PATTERN["measures"]
    edited = performed(content, tmp_path, "edited")
    assert set(compare(between(again, edited)[0]).heads.filter(quantity="mass")["n"]) == {6}
