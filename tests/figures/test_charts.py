"""What a picture looks like: how wide it is, that its series can be told apart, and that any name can be in it."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import pytest
import vl_convert as vlc

from attnscope.figures import KINDS, Look, selection, strokes
from attnscope.figures.kinds.decomposition import chart as decomposition_chart
from attnscope.figures.kinds.strip import chart as strip_chart
from attnscope.figures.kinds.trajectory import chart as trajectory_chart
from attnscope.figures.save import save
from attnscope.figures.sentences import wrapped
from attnscope.figures.write import Figure, content, draw_tables

LOOK = Look(title="T", y="share", caption="C.")
Row = dict[str, Any]


def figure(kind: str, rows: list[Row]) -> Figure:
    return draw_tables(kind, {"t": pl.DataFrame(rows, infer_schema_length=None)}, LOOK)


def picture(drawn: Figure) -> str:
    """Without the text that describes it."""
    svg = content(drawn, ".svg").decode()
    return re.sub(r"<(title|desc)>.*?</\1>", "", svg, flags=re.DOTALL)


def size(svg: str) -> tuple[float, float]:
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found
    return float(found[1]), float(found[2])


def texts(svg: str) -> list[str]:
    return re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</(?:text|tspan)>", svg)


def bars(groups: int, conditions: int, classes: int, *, adds_up: bool) -> list[Row]:
    return [
        {"group": f"Layer {group}", "bar": f"A condition's name {name}", "token_class": f"class {part}"}
        | {
            "mass": 0.3 / classes,
            "low": 0.1 / classes,
            "high": 0.5 / classes,
            "adds_up": adds_up,
            "expected": 0.1,
            "n": 9,
        }
        for group in range(groups)
        for name in range(conditions)
        for part in range(classes)
    ]


@pytest.mark.parametrize(
    ("groups", "conditions", "classes"), [(6, 6, 3), (30, 2, 2), (6, 12, 4), (1, 1, 14), (12, 1, 2)]
)
@pytest.mark.parametrize("adds_up", [True, False])
def test_bars_are_no_wider_than_a_page(groups: int, conditions: int, classes: int, adds_up: bool) -> None:
    wide, high = size(picture(figure("bars", bars(groups, conditions, classes, adds_up=adds_up))))
    assert wide < 1300
    assert high < 480 * groups


def test_bars_side_by_side_are_as_wide_as_they_need_and_have_their_labels() -> None:
    drawn = figure("bars", bars(2, 3, 3, adds_up=False))
    assert size(picture(drawn))[0] < 2 * 3 * 3 * 20 + 200
    assert texts(picture(drawn)).count("A condition's name 2") == 2
    labels = [each for each in texts(picture(drawn)) if each.startswith("x")]
    assert len(labels) == 2 * 3 * 3


def test_a_long_name_of_a_group_does_not_widen_its_bars() -> None:
    long = "a model with quite a long name that is measured: Layer 3"
    rows = [{**row, "group": f"{long}{row['group'][-1]}"} for row in bars(6, 1, 2, adds_up=False)]
    svg = picture(figure("bars", rows))
    assert size(svg)[0] < 1300
    assert {"Layer 30", "Layer 35"} <= set(texts(svg))


def lab(colour: str) -> Any:
    """CIE Lab: distances are as large as the eye sees them."""
    part = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    light = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    mixed = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(mixed @ light / np.array([0.95047, 1, 1.08883]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("palette", [selection.PALETTE, selection.LINES])
def test_fourteen_default_colours_are_clearly_different(palette: tuple[str, ...]) -> None:
    assert len(palette) >= 14
    pairs = list(itertools.combinations([*palette, selection.OTHERS], 2))
    assert min(math.dist(lab(one), lab(other)) for one, other in pairs) > 20
    assert all(selection._apart(one, other) >= selection.ALIKE for one, other in pairs)


def test_default_colours_are_none_that_was_given_nor_like_it() -> None:
    given = {"a": None, "b": selection.PALETTE[0], "c": "#4494c4", "d": None, "e": "#f00"}
    colours = selection.told_apart(given | dict.fromkeys("fghij"), selection.PALETTE)
    assert [colours[name] for name in "bce"] == [selection.PALETTE[0], "#4494c4", "#f00"]
    assert len(set(colours.values())) == 10
    assert colours["a"] != selection.PALETTE[0]
    assert selection.PALETTE[1] not in colours.values()


SERIES = [f"s{number}" for number in range(2 * len(selection.LINES))]


def looks(kind: str, rows: list[Row], mark: str) -> list[str]:
    """Colour and dash of each path of a kind of mark, in the order drawn."""
    svg = picture(figure(kind, rows))
    groups = re.findall(rf'<g class="mark-{mark} role-mark [^"]*marks"[^>]*>(.*?)</g>', svg)
    paths = [path for group in groups for path in re.findall(r"<path[^>]*>", group)]
    found = []
    for path in paths:
        shown = dict(re.findall(r'(fill|stroke|stroke-dasharray)="([^"]*)"', path))
        found.append(f"{shown.get('fill')} {shown.get('stroke')} {shown.get('stroke-dasharray')}")
    return found


@pytest.mark.parametrize("kind", ["lines", "trajectory", "bars", "spread"])
def test_no_two_series_of_a_figure_look_the_same(kind: str) -> None:
    few = SERIES[:14]
    if kind == "bars":
        rows = [{"group": "G", "bar": "b", "token_class": name, "mass": 0.05} for name in few]
        assert len(set(looks(kind, rows, "rect"))) == 14
    elif kind == "spread":
        rows = [{"panel": "P", "series": name, "prompt": 0, "value": 0.5, "mean": 0.5} for name in few]
        assert len(set(looks(kind, rows, "symbol"))) == 14
    elif kind == "lines":
        rows = [
            {"panel": "P", "form": "full", "series": name, "position": place, "attention": 0.1}
            for name in SERIES
            for place in range(2)
        ]
        assert len(set(looks(kind, rows, "line"))) == len(SERIES)
    else:
        rows = [{"panel": "P", "series": name, "x": float(x), "value": 0.1} for name in SERIES for x in range(2)]
        assert len(set(looks(kind, rows, "line"))) == len(SERIES)


def test_a_legend_of_lines_shows_each_dash_at_least_twice() -> None:
    start, _, end = (int(each) for each in re.findall(r"-?\d+", strokes.SAMPLE))
    assert all((end - start) * 5 >= 1.5 * sum(dash) for dash in strokes.DASHES)


def decomposed(q: float | None, low: float = -0.1) -> list[Row]:
    rows: list[Row] = [
        {"panel": "P", "token_class": "c", "quantity": name, "value": 0.2, "low": low, "high": 0.5, "q": each}
        for name, each in (("change", 0.01), ("dilution", q), ("redistribution", 0.6))
    ]
    return rows


def test_what_was_not_tested_is_hollow_in_a_decomposition_and_the_legend_says_so() -> None:
    untested, tested = figure("decomposition", decomposed(None)), figure("decomposition", decomposed(0.01))
    assert "Hollow: not tested." in decomposition_chart.legend(untested.table, LOOK)
    assert "Pale: not significant" in decomposition_chart.legend(untested.table, LOOK)
    assert "Hollow" not in decomposition_chart.legend(tested.table, LOOK)
    blue = decomposition_chart.COLOURS["dilution"]
    hollow = rf'<path aria-label="[^"]*"[^>]*fill="white"[^>]*stroke="{blue}"'
    assert len(re.findall(hollow, picture(untested))) == 1
    assert not re.findall(hollow, picture(tested))


def test_points_at_the_ends_of_a_decomposition_are_drawn_whole() -> None:
    rows = [
        {**row, "value": value, "low": None, "high": None}
        for row, value in zip(decomposed(0.01), (-1, 0, 1), strict=True)
    ]
    svg = picture(figure("decomposition", rows))
    across = [float(each) for each in re.findall(r'="point" transform="translate\(([\d.]+),', svg)]
    assert len(across) == 3
    assert min(across) >= 8
    assert max(across) <= decomposition_chart.WIDTH - 8


def course(n: list[int], high: float = 0.31) -> list[Row]:
    return [
        {"panel": "P", "series": "a", "x": float(x), "value": 0.3, "n": each, "against": "0" if x else None}
        | ({"low": 0.0, "high": 1.0} if each < 5 else {"low": 0.29, "high": high})
        for x, each in enumerate(n)
    ]


def test_places_that_few_prompts_reach_are_not_drawn_and_do_not_stretch_the_axis() -> None:
    drawn = figure("trajectory", course([10, 10, 6, 5, 4, 2]))
    assert len(drawn.table) == 6
    assert trajectory_chart.reached(drawn.table)["n"].to_list() == [10, 10, 6, 5]
    words = trajectory_chart.legend(drawn.table, LOOK)
    assert "Places that fewer than half of a line's prompts reach are not shown." in words
    assert "1.0" not in texts(picture(drawn))
    assert any(each.startswith("0.3") for each in texts(picture(drawn)))
    everywhere = figure("trajectory", course([10, 10, 10])).table
    assert "fewer than half" not in trajectory_chart.legend(everywhere, LOOK)


def test_each_line_has_a_half_of_its_own_and_lines_without_counts_are_drawn_whole() -> None:
    rows = [*course([10, 10]), *({**row, "series": "b"} for row in course([6, 6]))]
    assert len(trajectory_chart.reached(figure("trajectory", rows).table)) == 4
    counted = [{name: value for name, value in row.items() if name != "n"} for row in rows]
    assert len(trajectory_chart.reached(figure("trajectory", counted).table)) == 4


def test_a_legend_says_what_open_points_mean_wherever_there_are_some() -> None:
    rows = course([10, 10, 10])
    assert trajectory_chart.legend(figure("trajectory", rows).table, LOOK) == " Open points: not tested."
    tested = [{**row, "q": None if row["x"] == 0 else 0.01, "difference": 0.1} for row in rows]
    words = trajectory_chart.legend(figure("trajectory", tested).table, LOOK)
    assert "Filled: differs from the first point of its line" in words
    assert "Open: not significant, or not tested." in words
    other = [{**row, "series": "b", "against": "a", "q": 0.01, "difference": 0.1} for row in rows]
    both = trajectory_chart.legend(figure("trajectory", [*tested, *other]).table, LOOK)
    assert 'Filled: differs from "a" at the same place; on that line, from its first point' in both


def test_a_number_and_its_percent_sign_stay_on_one_line() -> None:
    words = "a band of 95 % around it"
    for width in range(8, len(words)):
        assert any("95 %" in line for line in wrapped(words, width))


def test_lines_say_the_smaller_number_of_prompts_first() -> None:
    rows = [
        {"panel": "P", "form": "full", "series": "a", "position": place, "attention": 0.1, "n": n}
        for place, n in enumerate((14, 9, 7))
    ]
    assert "7 to 14 prompts" in texts(picture(figure("lines", rows)))


def test_each_box_of_a_strip_is_as_wide_as_its_text() -> None:
    tokens = ["<|im_start|>", "x" * 40, "y" * 33]  # 85 columns: an axis that ends at a round number has more
    rows = [{"panel": "P", "position": at, "token": each, "attention": 0.1 * at} for at, each in enumerate(tokens)]
    svg = picture(figure("strip", rows))
    boxes = re.findall(r'aria-label="left: [^"]*position[^"]*" [^>]*d="M([\d.]+),0h([\d.]+)', svg)
    assert [(float(left), float(wide)) for left, wide in boxes[:3]] == [(0, 84), (84, 280), (364, 231)]


def test_wide_characters_take_two_columns_of_a_strip() -> None:
    tokens = ["日本", "e\u0301", "🙂", "日" * 60]
    part = pl.DataFrame({"position": range(4), "token": tokens, "attention": [0.1] * 4, "segment": ["s"] * 4})
    made = strip_chart.placed(part)
    assert made["right"].to_list() == [4, 5, 7, 87]
    assert made["shown"][3] == "日" * 43 + "…"


NAMES = [
    *("constructor", "toString", "valueOf", "hasOwnProperty", "__proto__", "__defineGetter__", "isPrototypeOf"),
    *('a "quoted" name', "it's", "a[0]", "a.b", "a\\b", "a\\.b", "{x}", "datum.x", "$x", "a: b", "a|b", "null", "1"),
]


def named(kind: str, name: str, *, adds_up: bool = True) -> list[Row]:
    """A table in which every text is the name, beside another one."""
    both = (name, "another")
    tables: dict[str, list[Row]] = {
        "bars": [
            {"group": group, "bar": bar, "token_class": part, "mass": 0.1, "low": 0.05, "high": 0.2}
            | {"total_low": 0.1, "total_high": 0.3, "bar_colour": "#ff0000", "adds_up": adds_up, "n": 9}
            for group in both
            for bar in both
            for part in both
        ],
        "attention-effect": [
            {"panel": panel, "layer": 0, "head": head, "attention": 0.1 * head, "effect": -0.1}
            for panel in both
            for head in range(3)
        ],
        "effect": [{"panel": panel, "place": place, "value": 0.1} for panel in both for place in both],
        "decomposition": [
            {"panel": panel, "token_class": part, "quantity": quantity, "value": 0.1, "low": 0.05, "high": 0.2}
            for panel in both
            for part in both
            for quantity in both
        ],
        "heatmap": [{"panel": panel, "layer": 0, "head": head, "value": 0.1} for panel in both for head in (0, 1)],
        "lines": [
            {"panel": panel, "form": "full", "series": series, "position": place, "attention": 0.1 * place}
            | {"low": 0.1, "high": 0.3, "q": 0.01, "n": 3 + place}
            for panel in both
            for series in both
            for place in range(3)
        ],
        "spread": [
            {"panel": panel, "series": series, "prompt": 0, "value": 0.2, "mean": 0.1, "low": 0.05, "high": 0.3}
            for panel in both
            for series in both
        ],
        "strip": [
            {"panel": panel, "position": at, "token": token, "attention": 0.1, "segment": token}
            for panel in both
            for at, token in enumerate(both)
        ],
        "trajectory": [
            {"panel": panel, "series": series, "x": float(x), "value": 0.1 * x, "low": 0.0, "high": 0.3, "axis": name}
            for panel in both
            for series in (name, "another", "third")
            for x in range(3)
        ],
    }
    return tables[kind]


def unescaped(svg: str) -> list[str]:
    signs = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
    shown = texts(svg)
    for sign, character in signs:
        shown = [each.replace(sign, character) for each in shown]
    return [each.rstrip("\u00a0") for each in shown]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_in_a_figure_of_any_kind(name: str) -> None:
    for kind, adds_up in (("bars", False), *((kind, True) for kind in sorted(KINDS.members))):
        drawn = figure(kind, named(kind, name, adds_up=adds_up))
        shown = unescaped(picture(drawn))
        plain = unescaped(picture(figure(kind, named(kind, "sample", adds_up=adds_up))))
        assert name in shown, kind
        assert len(shown) >= len(plain), kind
        assert name in drawn.alt


def test_any_name_can_be_in_the_picture_of_one_record(tmp_path: Path) -> None:
    table = pl.DataFrame({"name": ["constructor", "valueOf"], "mass": [0.1, 0.2]})
    chart = alt.Chart(table).mark_bar().encode(x="name:N", y="mass:Q", color="name:N")
    save(chart, tmp_path / "one.svg")
    shown = unescaped((tmp_path / "one.svg").read_text(encoding="utf-8"))
    assert {"constructor", "valueOf"} <= set(shown)
    for ending in (".png", ".pdf", ".html"):
        save(chart, tmp_path / f"one{ending}")
        assert (tmp_path / f"one{ending}").stat().st_size > 1000


def test_a_bars_name_keeps_its_colour_whatever_it_is() -> None:
    svg = picture(figure("bars", named("bars", "constructor")))
    assert svg.count('fill="#ff0000"') >= 2
    assert vlc.vegalite_to_svg(json.dumps(figure("bars", named("bars", "a\x01b")).description)).count("#ff0000") >= 2
