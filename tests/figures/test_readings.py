"""What is said of a chart is true of its numbers, and not said where it is false."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from attnscope.analysis.means import mean_over_prompts
from attnscope.analysis.spread import cut_to_shares, is_cut
from attnscope.figures import KINDS, Look
from attnscope.figures.kinds.heatmap import chart as heatmap_chart
from attnscope.figures.kinds.strip import chart as strip
from attnscope.figures.prose import Table, as_json
from attnscope.figures.write import draw_tables, write_figure

LOOK = Look(title="T", y="share", caption="C.")


def lines(
    one: list[float],
    two: list[float],
    three: list[float] | None = None,
    *,
    inserted: tuple[float, float] | None = None,
    rank: int | None = None,
) -> str:
    rows = [
        {"panel": "P", "form": "full", "series": name, "position": place, "attention": value}
        | {"within": inserted and inserted[0], "without": inserted and inserted[1]}
        | {"rank": rank, "of": 9 if rank else None}
        for name, values in (("one", one), ("two", two), ("three", three or []))
        for place, value in enumerate(values)
    ]
    return draw_tables("lines", {"t": pl.DataFrame(rows, infer_schema_length=None)}, LOOK).alt


def test_lines_tell_their_peaks_and_where_they_part() -> None:
    told = lines([0.1, 0.5, 0.2], [0.1, 0.1, 0.3])
    assert "P, full, one: highest 0.5000 at position 1, 0.2000 at position 2 and 0.1000 at position 0" in told
    apart = "above at 1 of 3 positions, significant or not"
    assert f"Largest difference, two minus one: -0.4000 at position 1 (not tested); {apart}." in told
    assert "The largest peak is 0.5000, at P, one (not tested)." in told
    other = lines([0.1, 0.1, 0.3], [0.1, 0.5, 0.2])
    assert f"Largest difference, two minus one: +0.4000 at position 1 (not tested); {apart}." in other


def test_lines_that_are_equal_are_said_to_be() -> None:
    told = lines([0.1, 0.2], [0.1, 0.2])
    assert "Equal wherever they overlap: one and two." in told
    assert "Largest difference" not in told
    assert "largest peak" not in told


def test_of_many_lines_the_two_furthest_apart_are_named() -> None:
    told = lines([0.1, 0.2], [0.1, 0.3], [0.6, 0.2])
    apart = "above at 1 of 2 positions, significant or not"
    assert f"Largest difference, three minus one: +0.5000 at position 0 (not tested); {apart}." in told
    assert "In each, 3 lines: one, two and three." in told


def test_inserted_tokens_are_compared_with_the_others_prompt_by_prompt() -> None:
    told = lines([0.1], [0.4], inserted=(0.15, 0.4))
    assert "Mean (one): 0.1500 per inserted token, 0.4000 per other token." in told
    assert "inserted token" not in lines([0.1] * 2, [0.1, 0.5])


def test_a_heads_rank_is_told_where_it_is_known() -> None:
    told = lines([0.1], [0.2], rank=4)
    assert "Heads are ranked by the distance between one and two on shared tokens." in told
    assert "Rank: 4 of 9." in told
    assert "ank" not in lines([0.1], [0.2])


def test_a_fact_about_every_panel_is_told_once() -> None:
    rows = [
        {"panel": panel, "layer": layer, "head": 0, "value": value}
        for panel, values in (("P", (0.1, 0.2)), ("Q", (0.4, 0.3)))
        for layer, value in enumerate(values)
    ]
    figure = draw_tables("heatmap", {"t": pl.DataFrame(rows)}, LOOK)
    (observed,) = (part for part in figure.reading.sections if part.heading == "Observations")
    (told,) = observed.blocks
    assert isinstance(told, Table)
    assert told.columns == (
        "",
        "Mean over heads",
        *(f"{which} mean of a layer (not tested)" for which in ("Largest", "Smallest")),
    )
    assert told.rows == (
        ("P", "0.1500", "0.2000, at layer 1", "0.1000, at layer 0"),
        ("Q", "0.3500", "0.4000, at layer 0", "0.3000, at layer 1"),
    )
    assert (
        "Q: Mean over heads: 0.3500; Largest mean of a layer (not tested): 0.4000, at layer 0; Smallest" in figure.alt
    )


def drawn(kind: str, rows: list[dict[str, Any]], tmp_path: Path) -> str:
    """The figure's picture, without the text that describes it."""
    figure = draw_tables(kind, {"t": pl.DataFrame(rows, infer_schema_length=None)}, LOOK)
    write_figure(figure, tmp_path)
    return re.sub(r"<(title|desc)>.*?</\1>", "", (tmp_path / "t.svg").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_ticks_below_lines_are_only_at_positions_that_were_tested(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"panel": "P", "form": "shared", "series": name, "position": place, "attention": 0.1 * place}
        | {"q": q if name == "two" else None, "against": "one", "difference": 0.1}
        for name in ("one", "two")
        for place, q in enumerate((0.001, 0.2, None, 0.01, None))
    ]
    groups = re.findall(r'<g class="mark-rect role-mark [^"]*marks"[^>]*>(.*?)</g>', drawn("lines", rows, tmp_path))
    assert [group.count("<path") for group in groups] == [2]


def test_a_cell_that_was_not_tested_does_not_look_significant(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"panel": "P", "layer": layer, "head": 0, "value": 0.4, "q": q, "floor": 0.01}
        for layer, q in enumerate((0.001, 0.5, None))
    ]
    assert drawn("heatmap", cells, tmp_path).count("#bdbdbd") == 2
    figure = draw_tables("heatmap", {"t": pl.DataFrame(cells)}, LOOK)
    assert "or within rounding error, or not tested." in heatmap_chart.legend(figure.table, LOOK)
    untested = [{**cell, "panel": "Q", "q": None} for cell in cells]
    assert drawn("heatmap", untested, tmp_path).count("#bdbdbd") == 0
    assert "Q (not tested)" in drawn("heatmap", cells + untested, tmp_path)


def test_legends_show_where_their_scale_ends(tmp_path: Path) -> None:
    values = (0.4, 0.1514, 0.1)
    rows = [{"panel": "P", "position": at, "token": "a", "attention": each} for at, each in enumerate(values)]
    assert ">0.1514<" in drawn("strip", rows, tmp_path)
    cells = [{"panel": "P", "layer": 0, "head": head, "value": value} for head, value in enumerate((0.1514, -0.01))]
    assert ">0.1514<" in drawn("heatmap", cells[:1], tmp_path)
    assert ">−0.1514<" in drawn("heatmap", cells, tmp_path)


def test_a_reading_of_many_bars_stays_short_and_does_not_repeat_itself() -> None:
    rows = [
        {"group": f"Layer {layer}", "bar": f"{model} / {name}", "token_class": token_class, "mass": mass}
        | {"against": None if (model, name) == ("a", "none") else "a / none" if name == "none" else f"{model} / none"}
        | {"difference": 0.01, "q": 0.01 if layer else 0.5, "pairs": 9}
        for layer in range(4)
        for model in "ab"
        for name in ("none", "filler", "sentence")
        for token_class, mass in (("hash", 0.3 + layer / 100), ("star", 0.1))
    ]
    figure = draw_tables("bars", {"t": pl.DataFrame(rows, infer_schema_length=None)}, LOOK)
    bullets = [item for section in as_json(figure.reading)["sections"] for item in section["items"]]
    assert len(bullets) <= 16
    assert figure.alt.count("has the largest share") == 1
    assert "hash has the largest share of every bar (not tested)." in figure.alt
    change = "above in Layer 1 (+0.0100), Layer 2 (+0.0100) and Layer 3 (+0.0100); not significant in Layer 0."
    assert figure.alt.count(change) == 5
    assert "b / filler against b / none, paired by prompt" in figure.alt
    assert "b / filler against a" not in figure.alt


def test_intervals_of_shares_end_at_0_and_1() -> None:
    masses = [0.62, 1.0, 1.0, 1.0, 1.0, 1.0, *([0.0] * 5), 0.1]
    prompts = pl.DataFrame({"bar": ["a"] * 6 + ["b"] * 6, "prompt": [*range(6)] * 2, "mass": masses})
    means = mean_over_prompts(prompts, ["bar"], "mass", {prompt: prompt for prompt in range(6)})
    assert means["high"][0] > 1
    assert means["low"][1] < 0
    cut = cut_to_shares(means, "low", "high")
    assert (cut["high"][0], cut["low"][1]) == (1, 0)
    assert is_cut(cut["mass"], cut["low"], cut["high"])
    assert not is_cut(means["mass"], means["low"], means["high"])


def heatmap(values: list[list[float]]) -> str:
    rows = [
        {"panel": "P", "layer": layer, "head": head, "value": value}
        for layer, heads in enumerate(values)
        for head, value in enumerate(heads)
    ]
    return draw_tables("heatmap", {"t": pl.DataFrame(rows)}, LOOK).alt


def test_a_map_tells_its_extremes_its_mean_and_its_signs() -> None:
    told = heatmap([[0.1, -0.2], [0.4, 0.3]])
    assert "highest layer 1 head 0 0.4000, layer 1 head 1 0.3000" in told
    assert "lowest layer 0 head 1 -0.2000" in told
    assert "Mean over heads: 0.1500." in told
    assert "Above zero (not tested): 3 of 4 heads." in told
    assert "Largest mean of a layer (not tested): 0.3500, at layer 1." in told
    assert "Above zero" not in heatmap([[0.1, 0.2]])
    assert "mean of a layer" not in heatmap([[0.1, 0.2], [0.2, 0.1]])


def test_a_map_says_when_its_prompts_are_too_few_to_find_a_head() -> None:
    def told(q: float, least: float | None) -> str:
        rows = {"panel": ["p"] * 2, "layer": [0, 0], "head": [0, 1], "value": [0.1, 0.3], "q": [0.9, q]}
        table = pl.DataFrame({**rows, "least_q": [least] * 2}, schema_overrides={"least_q": pl.Float64})
        drawn = draw_tables("heatmap", {"t": table}, LOOK)
        return f"{drawn.alt} {drawn.legend}"

    few = "too few prompts"
    assert few in told(0.9, 0.4)
    assert few not in told(0.9, 0.01)
    assert few not in told(0.9, None)
    assert few not in told(0.04, 0.4)  # several at once can be found where one alone can't


def test_heads_that_share_a_number_are_counted_and_not_named() -> None:
    values = [0.5, 0.2, *[0.0] * 6]
    rows = {"panel": ["p"] * 8, "layer": [0] * 8, "head": range(8), "value": values}
    told = draw_tables("heatmap", {"t": pl.DataFrame(rows)}, LOOK).alt
    assert "highest layer 0 head 0 0.5000, layer 0 head 1 0.2000 and 0 in 6 heads." in told
    assert "lowest 0 in 6 heads." in told
    tested = {**rows, "value": [0.5, 0.2, *[-0.1] * 6], "q": [0.01] * 6 + [0.9] * 2}
    told = draw_tables("heatmap", {"t": pl.DataFrame(tested)}, LOOK).alt
    assert "lowest -0.1000 in 6 heads (2 of them not significant)." in told


def test_heads_within_the_margin_are_counted_as_shown_to_be_below_it() -> None:
    rows = {"panel": ["p"] * 3, "layer": [0] * 3, "head": range(3), "value": [0.1, 0.2, 0.3]}
    table = pl.DataFrame({**rows, "q": [0.01, 0.9, 0.01], "same_q": [0.01, 0.01, 0.9]})
    told = draw_tables("heatmap", {"t": table}, LOOK).alt
    assert "Change shown to be within the margin: 2 of 3 heads (1 of them changes significantly)." in told


def test_a_strip_tells_its_highest_tokens_and_segment() -> None:
    rows = [("P", 0, "a", 0.1, "x"), ("P", 1, " b\n", 0.6, "y"), ("P", 2, "c", 0.3, "y")]
    names = ["panel", "position", "token", "attention", "segment"]
    told = draw_tables("strip", {"t": pl.DataFrame(rows, schema=names, orient="row")}, LOOK).alt
    assert r"highest ' b\n' at 1 0.6000, 'c' at 2 0.3000 and 'a' at 0 0.1000" in told
    assert "Largest mean of a segment's tokens (not tested): 0.4500, at y." in told


def test_a_strip_breaks_lines_where_the_text_does_and_where_it_is_full() -> None:
    tokens = ["a\n", "b", "x" * 80, "y" * 20, "z" * 500]
    part = pl.DataFrame({"position": range(5), "token": tokens, "attention": [0.1] * 5, "segment": ["s"] * 5})
    made = strip.placed(part)
    assert made["line"].to_list() == [0, 1, 1, 2, 3]
    assert (made["right"] <= strip.COLUMNS).all()


TABLES: dict[str, list[dict[str, Any]]] = {
    "bars": [{"group": "Layer 0", "bar": "m", "token_class": "c", "mass": 0.5}],
    "lines": [{"panel": "P", "form": "full", "series": "s", "position": 0, "attention": 0.5}],
    "heatmap": [{"panel": "P", "layer": 0, "head": 0, "value": 0.5}],
    "strip": [{"panel": "P", "position": 0, "token": "a", "attention": 0.5}],
    "decomposition": [{"panel": "P", "token_class": "c", "quantity": "change", "value": 0.5}],
    "spread": [{"panel": "P", "series": "s", "prompt": 0, "value": 0.5}],
    "trajectory": [{"panel": "P", "series": "s", "x": 0.0, "value": 0.5}],
    "effect": [{"panel": "P", "place": "p", "role": "r", "score": "s", "intervention": "i", "value": 0.5}],
    "attention-effect": [{"panel": "P", "layer": 0, "head": 0, "attention": 0.5, "effect": 0.5, "score": "s"}],
}


@pytest.mark.parametrize("kind", sorted(KINDS.members))
def test_the_least_table_of_each_kind_is_drawn_in_every_format_even_with_hostile_text(
    kind: str, tmp_path: Path
) -> None:
    hostile = "</script><script>alert(1)</script>"
    rows = [{key: hostile if isinstance(value, str) else value for key, value in row.items()} for row in TABLES[kind]]
    figure = draw_tables(kind, {"t": pl.DataFrame(rows)}, Look(title=hostile, y=hostile, caption=hostile))
    for path in write_figure(figure, tmp_path):
        assert path.stat().st_size > 50
    svg = (tmp_path / "t.svg").read_text()
    assert "<script" not in svg
    assert "<desc>&lt;/script&gt;&lt;script&gt;alert(1)" in svg
    assert json.loads((tmp_path / "t.vl.json").read_text())["description"].startswith("</script>")


def test_a_table_without_a_column_is_refused_with_what_is_needed() -> None:
    from attnscope.errors import AttnscopeError

    wrong = pl.DataFrame({"group": ["a"], "bar": ["b"], "token_class": ["c"], "mas": [1]})
    with pytest.raises(AttnscopeError, match=r"no column 'mass'.*near: mas.*needs group, bar, token_class, mass"):
        draw_tables("bars", {"t": wrong}, LOOK)
    with pytest.raises(AttnscopeError, match="can't be read as"):
        draw_tables("bars", {"t": pl.DataFrame(TABLES["bars"]).with_columns(mass=pl.lit("much"))}, LOOK)
    with pytest.raises(AttnscopeError, match="near: bars"):
        draw_tables("bar", {"t": pl.DataFrame(TABLES["bars"])}, LOOK)


def test_several_tables_stand_side_by_side_under_their_labels(tmp_path: Path) -> None:
    bars = pl.DataFrame(TABLES["bars"])
    both = draw_tables("bars", {"read": bars, "measured": bars.with_columns(pl.col("mass") * 2)}, LOOK)
    groups = list(dict.fromkeys(bars["group"]))
    assert list(dict.fromkeys(both.table["group"])) == [
        f"{label}: {each}" for label in ("read", "measured") for each in groups
    ]
    assert both.table["mass"].to_list() == [*bars["mass"], *(bars["mass"] * 2)]
    assert write_figure(both, tmp_path)


def test_tables_with_gaps_or_doubles_are_refused() -> None:
    from attnscope.errors import AttnscopeError

    for kind, column in (("bars", "mass"), ("lines", "attention"), ("heatmap", "value"), ("bars", "bar")):
        table = pl.DataFrame(TABLES[kind])
        with pytest.raises(AttnscopeError, match=f"column '{column}' has empty cells"):
            draw_tables(kind, {"t": table.with_columns(pl.lit(None).alias(column))}, LOOK)
        with pytest.raises(AttnscopeError, match="two rows have the same"):
            draw_tables(kind, {"t": pl.concat([table, table])}, LOOK)
    with pytest.raises(AttnscopeError, match="empty cells"):
        draw_tables("bars", {"t": pl.DataFrame(TABLES["bars"]).with_columns(mass=float("nan"))}, LOOK)


def test_a_bar_without_some_parts_and_parts_below_zero_are_read_as_they_are() -> None:
    rows = [
        {"group": "L", "bar": "x", "token_class": "a", "mass": 0.1},
        {"group": "L", "bar": "y", "token_class": "b", "mass": 0.9},
    ]
    told = draw_tables("bars", {"t": pl.DataFrame(rows)}, LOOK).alt
    assert "the highest bar reaches 0.9000" in told
    assert "L, y: b 0.9000; together 0.9000" in told
    below = [rows[0] | {"mass": -0.1}, rows[0] | {"token_class": "b", "mass": 0.2}]
    assert "% of the bar" not in draw_tables("bars", {"t": pl.DataFrame(below)}, LOOK).alt


def test_control_characters_are_drawn_as_signs_and_markup_stays_text(tmp_path: Path) -> None:
    table = pl.DataFrame([{"panel": "<img src=x>", "position": 0, "token": "a\x01\x1b<b>\uffff", "attention": 0.5}])
    figure = draw_tables("strip", {"t": table}, LOOK)
    write_figure(figure, tmp_path)
    assert "␁␛" in (tmp_path / "t.vl.json").read_text(encoding="utf-8")
    assert "\x01" not in (tmp_path / "t.svg").read_text(encoding="utf-8")
    assert "\\<img src=x>" in (tmp_path / "t.md").read_text(encoding="utf-8")
