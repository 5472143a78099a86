"""A control drawn twice is the null: of comparisons, of ranks, of maps, and in the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import regex

from attnscope.analysis.compared import carried, compare
from attnscope.analysis.comparisons import comparisons, placebo_for
from attnscope.analysis.insertion import class_tokens
from attnscope.analysis.multiverse import multiverse, verdicts
from attnscope.analysis.one_way import one_way
from attnscope.analysis.placebo import null_of, placebo_of
from attnscope.analysis.ranking import ranked_by_distance, ranking, reliability
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.errors import AttnscopeError
from attnscope.explorer.views.choices import HeadChoice
from attnscope.explorer.views.compare import HeadSide, pair
from attnscope.figures.validation import options_of
from attnscope.figures.write import make_figure
from attnscope.report.answer import answer
from attnscope.report.comparison_tables import facts, sheets
from attnscope.report.write import report_run
from attnscope.study.schema import FigureSpec
from tests.analysis.conftest import CONDITIONS, performed, study
from tests.tolerances import SUMMED

TIER = "command"

# ruff: noqa: S106

PLACEBO = "sentence (placebo)"
WORDS = ["gold", "river", "stone", "window", "letter", "garden", "bridge"]
WORDS += ["candle", "harbour", "meadow", "orchard", "lantern", "violin"]


def items(count: int) -> list[dict[str, str]]:
    return [
        {"intro": f"About the {WORDS[n % 13]}.", "question": f"Why is {WORDS[(5 * n + 3) % 13]} # {n}, not *?"}
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def drawn_twice(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    conditions: list[Any] = [*CONDITIONS[:2], {**CONDITIONS[2], "control": "redraw"}]
    prompts = {"items": items(26), "chat": "{intro}\n{question}"}
    classes = {"hash": "#", "question": "segment:question", "marks": "special:"}
    content = study(
        [{"label": "one", "source": str(tiny)}], conditions=conditions, prompts=prompts, classes=classes, margin=0.05
    )
    return performed(content, tmp_path_factory.mktemp("placebo"))


def test_the_second_draw_is_another_text_of_the_same_length(drawn_twice: Run) -> None:
    assert drawn_twice.conditions == ["none", "filler", "sentence", PLACEBO]
    assert placebo_of(drawn_twice, "sentence") == PLACEBO
    prompts = drawn_twice.table("prompts").select("condition", "prompt", "text", "inserted").collect()
    one, two = (prompts.filter(condition=name).sort("prompt") for name in ("sentence", PLACEBO))
    assert set(one["inserted"]) == set(two["inserted"]) == {24}
    assert not set(one["text"]) & set(two["text"])


def test_it_is_compared_with_the_first_and_with_nothing_else(drawn_twice: Run) -> None:
    kinds = {(each.kind, each.one.condition, each.two.condition) for each in comparisons(drawn_twice)}
    assert kinds == {
        ("condition", "none", "filler"),
        ("condition", "none", "sentence"),
        ("control", "sentence", "filler"),
        ("placebo", "sentence", PLACEBO),
    }
    control = next(each for each in comparisons(drawn_twice) if each.kind == "control")
    null = placebo_for(control)
    assert null is not None
    assert {null.one.condition, null.two.condition} == {"sentence", PLACEBO}
    found = compare(null).heads.filter(pl.col("quantity") == "mass")
    assert found["q"].null_count() == 0  # both have the same edits, so nothing follows from them
    assert (found["q"] < 0.05).sum() < 5


def test_a_map_of_a_difference_shows_the_placebo_beside_it(drawn_twice: Run) -> None:
    spec = FigureSpec(name="m", kind="heatmap", measure="question", difference=["sentence", "filler"], queries="last")
    figure = make_figure(drawn_twice, options_of(spec))
    titles = figure.table["panel"].unique(maintain_order=True).to_list()
    assert titles == ["filler minus sentence", "placebo: sentence, drawn twice"]
    mine = compare(next(each for each in comparisons(drawn_twice) if each.kind == "control")).heads.filter(
        quantity="mass", queries="last", token_class="question"
    )
    assert figure.table.filter(panel=titles[0])["value"].to_list() == mine["difference"].to_list()
    bars = make_figure(drawn_twice, options_of(FigureSpec(name="b", kind="bars")))
    assert not any("placebo" in name for name in bars.table["bar"])


def test_what_an_edit_alone_changes_is_not_tested(drawn_twice: Run) -> None:
    base, filler, sentence = (Side(drawn_twice, "one", name) for name in ("none", "filler", "sentence"))
    assert one_way(base, filler, "last", "mass") == {"other"}  # the slashes belong to no class of this study
    assert one_way(base, filler, "last", "enrichment") == {"question", "hash", "marks", "other"}
    assert one_way(sentence, filler, "last", "mass") == set()
    assert one_way(sentence, filler, "last", "enrichment") == set()
    found = compare(next(each for each in comparisons(drawn_twice) if each.kind == "condition"))
    assert found.heads.filter(quantity="enrichment")["q"].null_count() == len(found.heads.filter(quantity="enrichment"))
    assert found.heads.filter(quantity="mass", token_class="other")["q"].is_null().all()
    question = found.heads.filter(quantity="mass", token_class="question")
    assert question.filter(queries="last")["q"].is_not_null().all()
    assert question.filter(queries="all")["q"].is_null().all()  # of these queries, some see no question
    assert found.overall.filter(quantity="enrichment")["low"].is_not_null().any()  # it still has a size


def test_figures_do_not_test_what_an_edit_alone_changes(drawn_twice: Run) -> None:
    def drawn(kind: str, **options: Any) -> pl.DataFrame:
        return make_figure(drawn_twice, options_of(FigureSpec(name="f", kind=kind, **options))).table

    def bars(queries: str, classes: list[str], conditions: list[str]) -> pl.DataFrame:
        table = drawn("bars", queries=queries, classes=classes, conditions=conditions, layers=[0, 1])
        return table.filter(pl.col("against").is_not_null())

    tested = bars("last", ["question"], ["none", "filler"])
    assert tested["q"].is_not_null().all()
    everything = ["hash", "question", "marks", "other"]
    for queries, classes in (("last", ["question", "other"]), ("all", ["question"]), ("last", everything)):
        untested = bars(queries, classes, ["none", "filler"])
        assert untested["difference_low"].is_not_null().all()
        assert untested["q"].is_null().all()
    assert bars("all", ["question", "other"], ["sentence", "filler"])["q"].is_not_null().all()  # of one length
    figure = make_figure(
        drawn_twice,
        options_of(FigureSpec(name="f", kind="bars", classes=["other"], conditions=["none", "filler"], layers=[0])),
    )
    assert "not tested, as the edit alone changes it" in figure.alt
    panels = [{"model": "one", "layer": 0, "head": 0}]
    for over, conditions in (
        ("all", ["none", "filler"]),
        ("visible", ["none", "filler"]),
        ("all", ["sentence", "filler"]),
    ):
        lines = drawn("lines", panels=panels, queries="all", over=over, form="shared", conditions=conditions)
        paired = lines.filter(pl.col("difference_low").is_not_null())
        tested = paired.filter(pl.col("q").is_not_null())
        if conditions == ["sentence", "filler"]:
            assert len(tested) == len(paired) > 0
        elif over == "all":
            assert not len(tested)
        else:  # what precedes the insertion is seen by inserted tokens too; the question is not
            assert 0 < len(tested) < len(paired)
            assert min(tested["position"]) > max(paired.filter(pl.col("q").is_null())["position"])
    for measure, is_tested in (("uniform", False), ("sink", True)):
        scores = drawn("heatmap", measure=measure, difference=["none", "filler"], queries="last")
        assert scores.filter(pl.col("panel").str.starts_with("filler"))["q"].is_not_null().any() == is_tested
        alike = drawn("heatmap", measure=measure, difference=["sentence", "filler"], queries="last")
        assert alike["q"].is_not_null().any()
    everywhere = drawn("heatmap", measure="sink", difference=["none", "filler"], queries="all")
    assert everywhere.filter(pl.col("panel").str.starts_with("filler"))["q"].is_null().all()


ELSE: list[dict[str, Any]] = [
    {"name": "deleted", "delete": "intro"},
    {"name": "swapped", "swap": ["intro", "question"]},
    {"name": "again", "repeat": "question"},
    {"name": "cut", "truncate": "question", "tokens": 3},
    {"name": "both", "edits": [{"insert": {"repeat": "/"}, "tokens": 9, "before": "question"}, {"delete": "intro"}]},
]


def test_other_edits_than_insertions_are_not_tested_for_what_they_change_themselves(tiny: Path, tmp_path: Path) -> None:
    prompts = {"items": items(10), "chat": "{intro}\n{question}"}
    content = study([{"label": "one", "source": str(tiny)}], prompts=prompts, conditions=["none", *ELSE])
    made = performed(content, tmp_path)
    for each in comparisons(made):
        name, heads = each.two.condition, compare(each).heads.filter(quantity="mass")
        assert heads.filter(queries="all")["q"].is_null().all(), name  # other queries see each key
        tested = heads.filter(queries="last", token_class="marks")["q"]
        assert tested.is_not_null().all(), name
        last = heads.filter(queries="last", token_class="question")["q"]
        assert last.is_null().all() == (name == "cut"), name  # it has other tokens
        for measure, queries in (("uniform", "last"), ("sink", "all")):
            spec = FigureSpec(name="m", kind="heatmap", measure=measure, difference=["none", name], queries=queries)
            untested = make_figure(made, options_of(spec)).table["q"].is_null().all()
            assert untested == (queries == "all" or name != "swapped"), (name, measure)


def test_roles_are_known_when_a_run_is_read(tiny: Path, tmp_path: Path) -> None:
    rows = [
        {"passages": [{"text": f"The {WORDS[n]}.", "role": "gold"}, {"text": "Rain.", "role": "other"}], "q": f"{n}?"}
        for n in range(8)
    ]
    content = study(
        [{"label": "one", "source": str(tiny)}],
        prompts={"items": rows, "plain": "{passages} {q}"},
        conditions=["none", {"name": "turned", "order": {"of": "passages", "by": "reversed"}}],
        classes={"gold": "segment:passages[role=gold]", "first": "segment:passages[place=1]"},
    )
    made = performed(content, tmp_path)
    (each,) = comparisons(made)
    table = multiverse(each)
    assert set(table["token_class"]) >= {"gold"}
    assert table.filter(token_class="gold")["difference"].is_not_null().any()
    gold = class_tokens(made, "one", "turned").filter(token_class="gold")["tokens"].sum()
    assert gold == class_tokens(made, "one", "none").filter(token_class="gold")["tokens"].sum() > 0


def test_a_class_that_is_all_of_a_prompt_is_not_tested(tiny: Path, tmp_path: Path) -> None:
    prompts = {"items": [{"question": each["question"]} for each in items(12)], "plain": "{question}"}
    content = study([{"label": "one", "source": str(tiny)}], prompts=prompts, classes={"inserted": "segment:inserted"})
    made = performed(content, tmp_path)
    found = compare(next(each for each in comparisons(made) if each.two.condition == "filler" and each.one.is_base))
    other = found.heads.filter(quantity="mass", queries="last", token_class="other")
    assert other["low"].is_not_null().all()
    assert min(other["low"]) >= -1
    assert other["q"].is_null().all()
    place = HeadChoice("one", 0, 0, "last")
    rows = {row.token_class: row for row in pair(made, HeadSide(place, "none"), HeadSide(place, "filler")).rows}
    assert rows["other"].q is None
    base = next(each for each in comparisons(made) if each.two.condition == "filler" and each.one.is_base)
    assert not len(multiverse(base).filter(token_class="other"))


def test_heads_are_ranked_by_what_goes_beyond_the_null(drawn_twice: Run) -> None:
    assert null_of(drawn_twice, "filler", "sentence") == ("sentence", PLACEBO)
    assert null_of(drawn_twice, "none", "filler") == ("none", "sentence")
    assert null_of(drawn_twice, "none", "sentence") == ("none", "filler")  # never its own second draw
    assert null_of(drawn_twice, "sentence", PLACEBO) is None
    beyond = ranked_by_distance(drawn_twice, "one", "all", "visible", "none", PLACEBO)  # one draw beyond the other
    raw = ranked_by_distance(drawn_twice, "one", "all", "visible", "sentence", PLACEBO)
    assert beyond.beyond == ("none", "sentence")
    assert raw.beyond is None
    assert max(map(abs, beyond.effect.values())) < 0.5 * max(raw.effect.values())
    assert beyond.halves is not None
    best = beyond.top(1)[0]
    assert beyond.halves[best][0] == max(first for first, _ in beyond.halves.values())


def test_a_ranking_of_nothing_looks_reliable_only_without_a_null() -> None:
    chance = np.random.default_rng(0)
    spread = np.linspace(0.01, 0.1, 60)
    one, two = (np.abs(chance.normal(0, spread, (40, 60))) for _ in range(2))
    assert (reliability(one, 0) or 0) > 0.9
    assert (reliability(one - two, 0) or 0) < 0.5
    first = np.arange(40) < 20
    ranked = ranking((one - two).reshape(40, 6, 10), range(6), range(10), 0, first)
    assert ranked.halves is not None
    chosen, held = ranked.halves[ranked.top(1)[0]]
    assert chosen > 0
    assert held < chosen  # what was chosen for being large is smaller where it was not chosen


def test_every_way_to_count_is_there_and_the_usual_one_is_the_table(drawn_twice: Run) -> None:
    control = next(each for each in comparisons(drawn_twice) if each.kind == "control")
    table = multiverse(control)
    assert len(table) == 3 * 4 * 2 * 2 * 2  # classes, shares, query groups, over heads, special tokens
    usual = table.filter(share="characters", heads="mean", special="with")
    overall = compare(control).overall.filter(pl.col("quantity") == "mass")
    both = usual.join(overall, on=["queries", "token_class"], suffix="_there")
    assert len(both) == 6
    assert (both["difference"] - both["difference_there"]).abs().max() < SUMMED  # type: ignore[operator]
    for row in verdicts(table).iter_rows(named=True):
        assert row["choices"] + row["empty"] == 32
        assert row["empty"] == (16 if row["token_class"] in {"marks"} else 0)  # of special tokens alone
        assert row["up"] + row["down"] <= 32
        assert bool(row["flips"]) == (row["up"] > 0 and row["down"] > 0)


def test_signs_that_flip_are_named() -> None:
    rows = [
        {"token_class": "a", "share": share, "queries": "last", "heads": heads, "special": "with", "difference": value}
        for share in ("characters", "whole")
        for heads, value in (("mean", 0.2), ("median", -0.1))
    ]
    table = pl.DataFrame(rows).with_columns(p=pl.lit(0.01))
    (row,) = verdicts(table).iter_rows(named=True)
    assert (row["up"], row["down"], row["flips"], row["empty"]) == (2, 2, "in the median over heads", 0)


def test_a_flip_that_only_some_ways_show_is_said_to_be_one() -> None:
    rows = [
        {"token_class": "a", "share": share, "queries": "last", "heads": heads, "special": "with", "difference": value}
        for share, heads, value in (
            ("characters", "mean", 0.2),
            ("whole", "mean", 0.2),
            ("characters", "median", -0.1),
            ("whole", "median", 0.1),
            ("first", "median", -0.1),
            ("first", "mean", 0.2),
        )
    ]
    (row,) = verdicts(pl.DataFrame(rows).with_columns(p=pl.lit(0.01))).iter_rows(named=True)
    ways = "with mixed tokens counted by characters or by the first character in the median over heads"
    assert row["flips"] == ways
    (row,) = verdicts(pl.DataFrame(rows[:4]).with_columns(p=pl.lit(0.01))).iter_rows(named=True)
    assert row["flips"] == "with mixed tokens counted by characters in the median over heads"
    more = [*rows, {**rows[2], "queries": "all", "difference": 0.3}, {**rows[4], "queries": "all", "difference": -0.3}]
    (row,) = verdicts(pl.DataFrame(more).with_columns(p=pl.lit(0.01))).iter_rows(named=True)
    assert row["flips"] == f"{ways} (3 of 4 such ways to count)"


def test_a_choice_without_tokens_is_no_agreement() -> None:
    """Where every cell is ' #', no token begins with '#': there is nothing to count by first characters."""
    chosen = {"token_class": "a", "queries": "last", "heads": "mean", "special": "with"}
    rows = [
        {**chosen, "share": share, "difference": value, "p": p}
        for share, value, p in (("characters", 0.2, 0.01), ("whole", 0.4, 0.01), ("first", None, None))
    ]
    (row,) = verdicts(pl.DataFrame(rows)).iter_rows(named=True)
    assert (row["choices"], row["up"], row["down"], row["empty"], row["flips"]) == (2, 2, 0, 1, "")


def test_ways_that_give_the_same_number_are_counted_as_such() -> None:
    ways = [("characters", 0.1), ("whole", 0.1), ("first", 0.2), ("majority", 0.1)]
    rows = [
        {"token_class": "a", "share": share, "queries": "last", "heads": "mean", "special": "with"}
        | {"difference": difference, "low": 0.0, "high": 0.3, "p": 0.2, "n": 9}
        for share, difference in ways
    ]
    (row,) = verdicts(pl.DataFrame(rows)).iter_rows(named=True)
    assert (row["choices"], row["distinct"]) == (4, 2)


def test_the_answer_says_effect_interval_heads_placebo_and_limit(drawn_twice: Run) -> None:
    sentences = answer(drawn_twice)
    assert 3 <= len(sentences) <= 5
    whole = " ".join(sentences)
    assert regex.search("2[3-6] prompts", whole)  # some sentences can't be cut to the length of the filler
    assert "Placebo (sentence, drawn twice)" in whole
    assert "heads" in whole
    assert "not what they use" in sentences[-1]
    assert (drawn_twice.path / "report.html").read_text(encoding="utf-8").index("Placebo (sentence") > 0


def test_no_change_is_a_third_state(drawn_twice: Run) -> None:
    null = next(each for each in comparisons(drawn_twice) if each.kind == "placebo")
    found = compare(null).overall.filter(quantity="mass", queries="last", token_class="question")
    assert found["same"][0] is not None
    assert found["same"][0] + found["up"][0] + found["down"][0] <= 2 * found["heads"][0]
    heads = compare(null).heads.filter(quantity="mass")
    sure_of_none = heads.filter(pl.col("same_q") < 0.05)
    assert (sure_of_none["difference"].abs() < 0.05).all()


def test_who_carries_a_mean_is_told(drawn_twice: Run) -> None:
    for each in comparisons(drawn_twice):
        found = compare(each)
        for row in found.overall.filter(quantity="mass").iter_rows(named=True):
            mine = found.heads.filter(quantity="mass", queries=row["queries"], token_class=row["token_class"])
            apart = mine["difference"].to_numpy()
            assert row["median"] == pytest.approx(np.median(apart))
            assert row["rising"] == pytest.approx((apart > 0).mean())
            assert row["top_ten"] == pytest.approx(np.sort(np.abs(apart))[-10:].sum() / np.abs(apart).sum())
            assert row["true_at_least"] is None or row["true_at_least"] <= row["up"] + row["down"]


def test_ten_of_many_heads_are_named_for_the_change_they_carry() -> None:
    differences = [0.9, -0.8, *[0.05] * 8, *[0.001] * 20, *[-0.001] * 10]
    heads = pl.DataFrame({"token_class": ["a"] * 40, "difference": differences}).with_columns(
        p=pl.lit(0.5), q=pl.lit(0.5), same_q=pl.lit(None, pl.Float64), floor=pl.lit(0.0), sure=pl.lit(value=False),
        chosen=pl.lit(None, pl.Boolean), held=pl.lit(None, pl.Boolean),
    )  # fmt: skip
    (row,) = carried(heads, ["a"]).iter_rows(named=True)
    assert row["top_ten"] == pytest.approx((0.9 + 0.8 + 8 * 0.05) / (0.9 + 0.8 + 8 * 0.05 + 30 * 0.001))
    assert row["median"] == pytest.approx(0.001)
    assert (row["rising"], row["falling"]) == (29 / 40, 11 / 40)
    assert (row["up"], row["down"], row["heads"]) == (0, 0, 40)


def test_nothing_random_can_not_be_drawn_again(tiny: Path, tmp_path: Path) -> None:
    conditions = ["none", {**CONDITIONS[1], "control": "redraw"}]
    with pytest.raises(AttnscopeError, match="nothing in 'filler' is drawn at random"):
        performed(study([{"label": "one", "source": str(tiny)}], conditions=conditions), tmp_path)


def test_with_few_prompts_a_comparison_says_that_it_can_not_tell(tiny: Path, tmp_path: Path) -> None:
    prompts = {"items": items(7), "chat": "{intro}\n{question}"}
    few = performed(study([{"label": "one", "source": str(tiny)}], prompts=prompts), tmp_path)
    found = compare(comparisons(few)[2])
    words = " ".join(facts(found))
    assert "no p can be below 0.016" in words
    assert "the smallest q that a single head can reach is" in words
    counts = [cell for sheet in sheets(found, "last") for row in sheet.rows for cell in row]
    assert any("too few prompts or clusters for one head alone" in cell for cell in counts)


def test_a_few_clusters_with_most_of_the_prompts_are_told_wherever_a_test_is_missing(
    tiny: Path, tmp_path: Path
) -> None:
    rows = [{**each, "topic": f"t{max(0, n - 10)}"} for n, each in enumerate(items(17))]  # 11 of 17 are t0
    prompts = {"items": rows, "chat": "{intro}\n{question}", "cluster": "topic"}
    made = performed(study([{"label": "one", "source": str(tiny)}], prompts=prompts), tmp_path)
    found = compare(next(each for each in comparisons(made) if each.kind == "control"))
    assert found.heads["p"].is_null().all()
    assert "A few clusters have most of the prompts, so there is no interval and no test." in facts(found)
    cells = [cell for sheet in sheets(found, "last") for row in sheet.rows for cell in row]
    assert "a few clusters have most of the prompts, so there is no test" in cells
    assert "a few clusters have most of the prompts, so there is no test" in answer(made)[0]
    spec = FigureSpec(name="m", kind="heatmap", measure="marks", difference=["none", "filler"])
    assert "the clusters of prompts are too few or too unequal for a test" in make_figure(made, options_of(spec)).alt
    (warning,) = [each for each in report_run(made.path).warnings if "cluster" in each]
    assert "most of the 17 prompts are in a few of 7 clusters (11 in the largest), so nothing is tested" in warning


def test_a_class_that_one_prompt_has_can_be_drawn_and_told(tiny: Path, tmp_path: Path) -> None:
    rows = [
        {**each, "question": each["question"].replace("#", "#" if n == 4 else "+")} for n, each in enumerate(items(12))
    ]
    prompts = {"items": rows, "chat": "{intro}\n{question}"}
    figures = [
        {"name": "map", "kind": "heatmap", "measure": "hash", "difference": ["none", "filler"]},
        {"name": "bars", "kind": "bars"},
        {"name": "split", "kind": "decomposition"},
    ]
    content = study([{"label": "one", "source": str(tiny)}], prompts=prompts, classes={"hash": "#"}, figures=figures)
    made = report_run(performed(content, tmp_path).path)
    assert {figure.name for figure in made.figures} == {"map", "bars", "split"}
    assert "inf" not in " ".join(made.answer).replace("information", "")


def test_copies_of_a_prompt_count_once(tiny: Path, tmp_path: Path) -> None:
    twice = {"items": items(2) * 10, "chat": "{intro}\n{question}"}
    made = performed(study([{"label": "one", "source": str(tiny)}], prompts=twice), tmp_path)
    found = compare(comparisons(made)[0])
    assert (found.overall["n"][0], found.overall["clusters"][0]) == (20, 2)
    assert found.heads["q"].is_null().all()
    assert "n = 20 prompts in 2 clusters" in facts(found)[0]
    assert "fewer than 6 clusters" in " ".join(facts(found))


def test_a_cluster_is_a_field_of_the_prompts(tiny: Path, tmp_path: Path) -> None:
    rows = [{**each, "topic": f"t{n % 9}"} for n, each in enumerate(items(18))]
    prompts = {"items": rows, "chat": "{intro}\n{question}", "cluster": "topic"}
    made = performed(study([{"label": "one", "source": str(tiny)}], prompts=prompts), tmp_path)
    found = compare(comparisons(made)[0])
    assert (found.overall["n"][0], found.overall["clusters"][0]) == (18, 9)
    assert set(made.table("prompts").collect()["cluster"]) == {f"t{n}" for n in range(9)}
    prompts["cluster"] = "topik"
    with pytest.raises(AttnscopeError, match="has no 'topik'"):
        performed(study([{"label": "one", "source": str(tiny)}], prompts=prompts), tmp_path, "other")


def test_a_query_group_in_the_middle_puts_exactly_nothing_on_what_it_does_not_see(tiny: Path, tmp_path: Path) -> None:
    rows = [{"intro": "Look here.", "middle": f"{WORDS[n]} " * (5 + n), "end": "So what?" * 9} for n in range(8)]
    prompts = {"items": rows, "plain": "{intro} {middle} {end}"}
    classes = {"end": "segment:end", "intro": "segment:intro"}
    content = study(
        [{"label": "one", "source": str(tiny)}],
        prompts=prompts,
        classes=classes,
        conditions=["none"],
        measure={"queries": ["middle"]},
    )
    mass = performed(content, tmp_path).table("mass").collect()
    later = mass.filter(pl.col("token_class") == "end")
    assert later["mass"].max() == later["expected"].max() == later["expected"].min() == 0
    assert mass["expected"].min() == 0
