"""Prompts that differ in what they have: figures, answers and quantities say how many there are and add nothing up
that does not add up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as tf

from attnscope.analysis.derived import derived_values
from attnscope.analysis.insertion import insertion
from attnscope.analysis.ranking import ranked_by_distance
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, masses
from attnscope.errors import AttnscopeError
from attnscope.figures.write import figure_of
from attnscope.report.answer import answer
from attnscope.study.schema import FigureSpec
from tests.runs.test_groups_and_sets import ARCHITECTURES, GROUPED, Matrix, ran
from tests.tolerances import SHALLOW

TIER = "command"

ITEMS = [
    {"question": "1 2", "context": "Seven red cups.", "answer": "a longer answer than the others"},
    {"question": "3 #", "context": "Nine blue cups.", "answer": "two"},
    {"question": "# #", "context": "No cups at all.", "answer": "b"},
    {"question": "4 5", "context": "And some more..", "answer": "never"},
]
STUDY: dict[str, Any] = {
    "prompts": {"items": ITEMS, "plain": "{context}\n{question}\n", "answer": {"field": "answer"}},
    "conditions": ["none", {"name": "hinted", "insert": {"text": "Look!"}, "before": "question"}],
    "classes": {
        "digit": {"regex": "[0-9]", "within": "question"},
        "hash": {"characters": "#", "within": "question"},
        "inserted": "segment:inserted",
    },
    "also": {},
    "quantities": {
        "share": {"share": "digit", "of": ["digit", "hash"]},
        "hinted share": {"share": "digit", "of": ["digit", "inserted"]},
        "fading": {"decay": "hash", "over": "bin"},
    },
    "measure": {
        "queries": [
            "last",
            {"each": "writing", "name": "step"},
            {"bins": {"of": "writing", "count": 40}, "name": "bin"},
        ]
    },
    "figures": [],
}


@pytest.fixture(scope="module")
def unlike(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return ran(tmp_path_factory.mktemp("unlike"), "LlamaForCausalLM", **STUDY)[0]


def bars(run: Run, **options: Any) -> Any:
    figure = {"name": "bars", "kind": "bars", "classes": ["digit", "hash"], "conditions": ["none"], **options}
    return figure_of(run, FigureSpec.model_validate(figure))


def test_parts_over_different_prompts_stand_side_by_side_with_their_own_n_and_few_have_no_interval(unlike: Run) -> None:
    figure = bars(unlike)
    assert figure.table["adds_up"].to_list() == [False] * len(figure.table)
    assert figure.table["total_low"].is_null().all()
    assert dict(figure.table.select("token_class", "n").unique().iter_rows()) == {"digit": 3, "hash": 2}
    assert figure.table["low"].is_null().all()
    assert figure.table["high"].is_null().all()
    text = json.dumps([figure.look.caption, figure.alt])
    assert "3 of 4 prompts have digit and 2 of 4 prompts have hash" in text
    assert "side by side" in text
    assert not any(word in text for word in ("together", "of the bar", "Stacked"))
    marks = json.dumps(figure.description)
    assert '"xOffset"' in marks
    assert '"stack": false' in marks
    for row in figure.table.iter_rows(named=True):
        values = masses(unlike, "m", "none", "last").of([row["token_class"]])[0]
        layer = int(row["group"].removeprefix("Layer "))
        assert row["mass"] == pytest.approx(np.nanmean(values[:, layer]))


def test_parts_over_the_same_prompts_are_stacked_also_beside_a_condition_that_inserts(unlike: Run) -> None:
    figure = bars(unlike, classes=["digit"], conditions=["none", "hinted"])
    assert figure.table["adds_up"].all()
    assert "3 of 4 prompts have digit" in figure.look.caption
    assert "Stacked" in figure.alt
    assert figure.table["total_low"].is_null().all()  # four prompts have a mean, and no interval


def test_classes_in_as_many_but_other_prompts_do_not_add_up(tmp_path: Path) -> None:
    items = [{"question": each} for each in ("1 2", "3 4", "# #", "# ##")]
    changes = {**STUDY, "prompts": {"items": items, "plain": "{question}"}, "measure": {"queries": ["last"]}}
    run, _ = ran(tmp_path, "LlamaForCausalLM", **{**changes, "quantities": {}, "conditions": ["none"]})
    figure = bars(run)
    assert set(figure.table["n"]) == {2}
    assert not figure.table["adds_up"].any()
    (sentence, *_) = answer(run)
    assert "the prompts (of 4) that have the class" in sentence
    assert sentence.count("n = 2") == 2


def test_a_share_needs_all_of_its_classes_unless_the_condition_has_none_of_one(unlike: Run) -> None:
    _, values = derived_values(Side(unlike, "m", "none"), "last", "share")
    assert np.isnan(values).all((1, 2)).tolist() == [True, False, True, True]
    _, values = derived_values(Side(unlike, "m", "none"), "last", "hinted share")
    assert np.isnan(values).all((1, 2)).tolist() == [False, False, True, False]
    np.testing.assert_allclose(values[[0, 1, 3]], 1)  # nothing is inserted here


def test_a_decay_goes_by_the_numbers_of_the_groups_that_a_prompt_has(unlike: Run) -> None:
    groups = unlike.series["bin"]
    assert [group.number for group in groups] != list(range(1, len(groups) + 1))
    _, got = derived_values(Side(unlike, "m", "none"), "last", "fading")
    for prompt in (1, 2):
        numbers, course = [], []
        for group in groups:
            values = masses(unlike, "m", "none", group.name).of(["hash"])[0][prompt]
            if not np.isnan(values).any():
                numbers.append(group.number)
                course.append(values.ravel())
        if len(numbers) > 1:
            slopes = np.polyfit(np.array(numbers, dtype=float), np.stack(course), 1)[0]
            np.testing.assert_allclose(got[prompt].ravel(), -slopes, atol=1e-9)
    assert not np.isnan(got[1]).any()


def test_a_course_says_how_many_prompts_reach_its_ends(unlike: Run) -> None:
    spec = {"name": "course", "kind": "trajectory", "queries": "step", "classes": ["digit"], "conditions": ["none"]}
    figure = figure_of(unlike, FigureSpec.model_validate(spec))
    ends = figure.table.sort("x")["n"].to_list()
    assert ends[0] > ends[-1]
    assert f"(n = {ends[0]})" in figure.alt
    assert f"(n = {ends[-1]})" in figure.alt
    assert "within prompts that have both" in figure.alt


def test_a_strip_shows_a_prompt_that_has_the_queries(unlike: Run) -> None:
    last = unlike.series["step"][-1].name
    figure = figure_of(unlike, FigureSpec(name="strip", kind="strip", queries=last, conditions=["none"]))
    shown = unlike.table("tokens").filter(condition="none", prompt=0).collect()
    assert figure.table["token"].to_list() == shown.sort("position")["text"].to_list()
    missing = FigureSpec.model_validate({"name": "strip", "kind": "strip", "queries": last, "prompt": 2})
    with pytest.raises(AttnscopeError, match="prompt 2 of m under none has no such queries"):
        figure_of(unlike, missing)


def test_heads_are_ranked_over_the_prompts_that_have_the_queries(unlike: Run) -> None:
    last = unlike.series["step"][-1].name
    assert ranked_by_distance(unlike, "m", last, "visible", "none", "hinted").of == 8
    spec = {"name": "lines", "kind": "lines", "queries": last, "heads": "top 2 by effect"}
    assert len(figure_of(unlike, FigureSpec.model_validate(spec)).table)


def test_copies_of_one_prompt_have_no_interval_and_captions_say_so(tmp_path: Path) -> None:
    changes = {"prompts": {"items": [ITEMS[0]] * 7, "plain": "{question}"}, "measure": {"queries": ["last"]}}
    more = {"quantities": {}, "conditions": ["none"], "classes": {"digit": "re:[0-9]"}}
    run, _ = ran(tmp_path, "LlamaForCausalLM", **{**STUDY, **changes, **more})
    for kind in ("bars", "spread", "lines"):
        options = {"panels": [{"model": "m", "layer": 0, "head": 0}]} if kind == "lines" else {"classes": ["digit"]}
        figure = figure_of(run, FigureSpec.model_validate({"name": kind, "kind": kind, **options}))
        assert (
            "no interval, as there are too few clusters of prompts, or a few have most of them" in figure.look.caption
        )
        assert "95 %" not in figure.look.caption


def test_what_is_left_out_is_counted_over_the_queries_and_heads_shown(tmp_path: Path) -> None:
    run, _ = ran(tmp_path, "LlamaForCausalLM", **{**STUDY, "without": ["first"], "conditions": ["none"]})
    groups = [group.name for group in run.series["step"]]
    values = np.stack([masses(run, "m", "none", group).of(["removed"])[0] for group in groups])
    spec = {"name": "course", "kind": "trajectory", "queries": "step", "classes": ["digit"]}
    caption = figure_of(run, FigureSpec.model_validate(spec)).look.caption
    assert f"which get {100 * np.nanmean(values):.0f} % of it" in caption
    one = figure_of(run, FigureSpec.model_validate({"name": "b", "kind": "bars", "layers": [1], "heads": [2]}))
    alone = masses(run, "m", "none", "last").of(["removed"])[0][:, 1, 2]
    assert f"which get {100 * np.nanmean(alone):.0f} % of it" in one.look.caption


def test_shares_of_the_rest_of_a_model_with_sinks_of_its_own(tmp_path: Path) -> None:
    ARCHITECTURES["GptOssForCausalLM"] = lambda: tf.GptOssConfig(
        **GROUPED, num_local_experts=2, num_experts_per_tok=1, sliding_window=24
    )
    changes = {**STUDY, "without": ["segment:context"], "conditions": ["none"], "quantities": {}}
    changes["measure"] = {"queries": ["last", "context", {"each": "context", "name": "step"}]}
    run, lens = ran(tmp_path, "GptOssForCausalLM", **changes)
    assert run.sink_share("m") > 0
    full = Matrix(run, lens, "none", 0)
    removed = full.of["context"]
    received = full.attention[:, :, -1]
    digit = np.array([each.isdigit() for each in full.tokens["text"].to_list()]) & full.of["question"]
    want = received[..., digit].sum(-1) / received[..., ~removed].sum(-1)
    np.testing.assert_allclose(masses(run, "m", "none", "last").of(["digit"])[0][0], want, atol=SHALLOW)
    assert np.isnan(masses(run, "m", "none", "context").mass[0, :, :, :-1]).all()
    answer(run)


def test_a_group_that_sees_only_what_is_left_out_has_a_report_that_says_so(tmp_path: Path) -> None:
    changes = {**STUDY, "without": ["segment:context"], "conditions": ["none"], "quantities": {}}
    run, _ = ran(tmp_path, "LlamaForCausalLM", **{**changes, "measure": {"queries": ["context", "last"]}})
    assert "nothing is left" in " ".join(answer(run))
    assert (run.path / "report.html").is_file()
    strip = FigureSpec.model_validate({"name": "strip", "kind": "strip", "queries": "context"})
    with pytest.raises(AttnscopeError, match="leaves nothing"):
        figure_of(run, strip)


def test_where_nothing_is_left_nothing_counts_as_zero(tmp_path: Path) -> None:
    changes = {**STUDY, "without": ["segment:context"], "quantities": {}, "measure": {"queries": ["context", "last"]}}
    run, _ = ran(tmp_path, "LlamaForCausalLM", **changes)
    assert np.isnan(insertion(run, "m", "none", "hinted", "context").taken).all()
    assert not np.isnan(insertion(run, "m", "none", "hinted", "last").taken).any()
    assert sums_off(run) < 1e-4


def sums_off(run: Run) -> float:
    """How far row sums are from one at most, as the evidence says."""
    (line,) = [
        each for each in (run.path / "evidence.md").read_text().splitlines() if "add up to 1 in every cell" in each
    ]
    return float(line.rpartition("within ")[2].rstrip("."))


def test_row_sums_in_the_evidence_are_those_of_classes_not_of_sets(tmp_path: Path) -> None:
    changes = {**STUDY, "also": {"everything": "re:(?s).", "twice": "segment:context"}, "conditions": ["none"]}
    run, _ = ran(tmp_path, "LlamaForCausalLM", **{**changes, "quantities": {}})
    assert sums_off(run) < 1e-4
