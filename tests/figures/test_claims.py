"""A reading never says "above", "more" or "rises" of what is not significant without saying so.

Random tables of every kind of figure are put into words. A sentence that says which of two numbers is the larger one
must also say that this is not tested or not significant, unless q and the rounding error of what it is about allow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.figures import KINDS, selection
from attnscope.figures.kind import Look
from attnscope.figures.kinds.decomposition.chart import COLOURS
from attnscope.figures.kinds.decomposition.chart import OTHERS as OTHER_QUANTITIES
from attnscope.figures.prose import Bullets, Document, Paragraph, Section, Table, plain

CLAIM = re.compile(
    r"\b(above|below|higher|lower|greater|exceeds|more|less|rises?|falls?|rose|fell|increases?|decreases?|raises?|lowers?|gains?|loses?|"
    r"largest|smallest)\b"
)
CAUTIOUS = re.compile(
    r"not tested|not significant|significant or not|within rounding error|[Ss]ignificantly|shown to be within the"
)
LOOK = Look(title="A figure", y="attention", caption="A caption.")

SHARES = st.floats(0, 1).map(lambda value: round(value, 4))
CHANGES = st.floats(-1, 1).map(lambda value: round(value, 4))
RATES = st.one_of(st.none(), st.sampled_from([0.001, 0.049, 0.05, 0.3, 1.0]))
FLOORS = st.one_of(st.none(), st.sampled_from([0.0, 0.2]))


def sentences_of(reading: Document) -> Iterator[str]:
    """Every sentence, and every cell of a table with its column's name; without what is said about the axes."""

    def of_section(section: Section) -> Iterator[str]:
        for block in section.blocks:
            match block:
                case Section():
                    yield from of_section(block)
                case Paragraph():
                    yield plain(block.text)
                case Bullets():
                    yield from map(plain, block.items)
                case Table():
                    for row in block.rows:
                        yield from (f"{name}: {cell}" for name, cell in zip(block.columns, row, strict=True))

    for section in reading.sections:
        if section.heading != "Axes":
            yield from of_section(section)


def refuse_bare_claims(reading: Document) -> None:
    for sentence in sentences_of(reading):
        if CLAIM.search(sentence):
            assert CAUTIOUS.search(sentence), sentence


def ends(value: float | None, wide: float = 0.1) -> dict[str, float | None]:
    return {"low": None if value is None else value - wide, "high": None if value is None else value + wide}


@st.composite
def bars(draw: st.DrawFn) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    names = ["one", "two", "three"][: draw(st.integers(1, 3))]
    for group in range(draw(st.integers(1, 5))):
        for place, name in enumerate(names):
            paired = place > 0 and draw(st.booleans())
            difference = draw(CHANGES) if paired else None
            against = {
                "against": names[0] if paired else None,
                "difference": difference,
                **{f"difference_{end}": value for end, value in ends(difference).items()},
                "q": draw(RATES) if paired else None,
                "floor": draw(FLOORS) if paired else None,
                "pairs": 12 if paired else None,
            }
            for kind in ("#", "*"):
                mass = draw(SHARES)
                row = {
                    "group": f"Layer {group}",
                    "bar": name,
                    "token_class": kind,
                    "mass": mass,
                    "n": 12,
                    "expected": 0.1,
                }
                total = {f"total_{end}": value for end, value in ends(mass).items()}
                rows.append({**row, **ends(mass), **total, **against})
    return KINDS.find("bars", "").checked(pl.DataFrame(rows, infer_schema_length=None), "bars")


@st.composite
def lines(draw: st.DrawFn) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(["none", "filler", "sentence"][: draw(st.integers(1, 3))]):
        for position in range(draw(st.integers(1, 4))):
            value, tested = draw(SHARES), place > 0 and draw(st.booleans())
            difference = draw(CHANGES) if tested else None
            against = {
                "against": "none" if place else None,
                "difference": difference,
                **{f"difference_{end}": each for end, each in ends(difference).items()},
                "q": draw(RATES) if tested else None,
            }
            where = {"panel": "head", "form": "shared", "series": name, "position": position, "n": 12}
            rows.append({**where, "attention": value, **ends(value), "inserted": 0.0, **against})
    return KINDS.find("lines", "").checked(pl.DataFrame(rows, infer_schema_length=None), "lines")


@st.composite
def heatmap(draw: st.DrawFn) -> pl.DataFrame:
    tested = draw(st.booleans())
    rows = [
        {
            "panel": panel,
            "layer": layer,
            "head": head,
            "value": draw(CHANGES),
            "n": 12,
            "q": draw(RATES) if tested else None,
            "floor": draw(FLOORS),
            "same_q": draw(RATES) if tested else None,
        }
        for panel in ["a", "b"][: draw(st.integers(1, 2))]
        for layer in range(draw(st.integers(1, 3)))
        for head in range(2)
    ]
    return KINDS.find("heatmap", "").checked(pl.DataFrame(rows, infer_schema_length=None), "heatmap")


@st.composite
def decomposition(draw: st.DrawFn) -> pl.DataFrame:
    rows = []
    for name in ["question", "other"]:
        for quantity in ("change", "dilution", "redistribution"):
            value = draw(CHANGES)
            heads = {"up": draw(st.integers(0, 5)), "down": draw(st.integers(0, 5)), "heads": 10}
            where = {"panel": "filler minus none", "token_class": name, "quantity": quantity, "value": value, "n": 12}
            rows.append({**where, **ends(value), "q": draw(RATES), "floor": draw(FLOORS), **heads})
    return KINDS.find("decomposition", "").checked(pl.DataFrame(rows, infer_schema_length=None), "decomposition")


@st.composite
def spread(draw: st.DrawFn) -> pl.DataFrame:
    rows = []
    for series in ["none", "filler"]:
        mean = draw(SHARES)
        for prompt in range(draw(st.integers(1, 4))):
            row = {"panel": "question", "series": series, "prompt": prompt, "value": draw(SHARES), "mean": mean}
            rows.append({**row, **ends(mean)})
    return KINDS.find("spread", "").checked(pl.DataFrame(rows, infer_schema_length=None), "spread")


@st.composite
def strip(draw: st.DrawFn) -> pl.DataFrame:
    rows = [
        {"panel": panel, "position": position, "token": "a", "attention": draw(SHARES), "segment": "question"}
        for panel in ["none", "filler"]
        for position in range(draw(st.integers(1, 4)))
    ]
    return KINDS.find("strip", "").checked(pl.DataFrame(rows), "strip")


@st.composite
def trajectory(draw: st.DrawFn) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    across = draw(st.booleans())  # compared with the first line, or each with its own first place
    points = draw(st.integers(1, 4))
    for line in range(draw(st.sampled_from([1, 2, 7]))):
        for point in range(points):
            value, other = draw(SHARES), (across and line > 0) or point > 0
            difference = draw(st.one_of(st.none(), CHANGES)) if other else None
            against = {
                "against": ("line 0" if across and line else "step 0") if other else None,
                "difference": difference,
                **{f"difference_{end}": each for end, each in ends(difference).items()},
                "q": draw(RATES) if difference is not None else None,
                "floor": draw(FLOORS),
            }
            where = {"panel": "question", "series": f"line {line}", "x": float(point), "at": f"step {point}", "n": 12}
            rows.append({**where, "value": value, **ends(value), **against})
    return KINDS.find("trajectory", "").checked(pl.DataFrame(rows, infer_schema_length=None), "trajectory")


@st.composite
def effect(draw: st.DrawFn) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    by, score = draw(st.sampled_from(["one", "layer", "head"])), draw(st.sampled_from(["logprob", "flips"]))
    count, controlled = draw(st.sampled_from([1, 3, 9])), draw(st.booleans())
    for panel in ["a", "b"][: draw(st.integers(1, 2))]:
        for place in range(count):
            where = {"panel": panel, "place": f"{by} {place}", "score": score, "n": 12, "clusters": 12, "pairs": 12}
            where |= {"layer": None if by == "one" else place, "head": place if by == "head" else None}
            value = draw(CHANGES)
            tested = {"q": draw(RATES), "same_q": draw(RATES), "least_q": draw(RATES)}
            mine = {**where, **tested, "role": "intervention", "intervention": "x", "value": value, **ends(value)}
            if controlled:
                difference, control = draw(CHANGES), draw(CHANGES)
                mine |= {"against": "y", "difference": difference, "difference_q": draw(RATES)}
                mine |= {f"difference_{end}": each for end, each in ends(difference).items()}
                mine["difference_same_q"] = draw(RATES)
                beside = {"role": "control", "intervention": "y", "value": control, "q": draw(RATES)}
                again = {"against": "z", "difference": draw(CHANGES), "difference_q": draw(RATES)}
                rows.append({**where, **beside, **ends(control), **again})
            rows.append(mine)
    return KINDS.find("effect", "").checked(pl.DataFrame(rows, infer_schema_length=None), "effect")


@st.composite
def attention_effect(draw: st.DrawFn) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    tested = draw(st.booleans())
    for panel in ["a", "b"][: draw(st.integers(1, 2))]:
        value, known = draw(CHANGES), draw(st.booleans())
        found: dict[str, float | None] = {"spearman": value, "pearson": value} if draw(st.booleans()) else {}
        if found and known:
            found |= {f"{name}_{end}": each for name in ("spearman", "pearson") for end, each in ends(value).items()}
        for head in range(draw(st.integers(1, 7))):
            numbers = {"attention": draw(SHARES), "effect": draw(CHANGES), "q": draw(RATES) if tested else None}
            where = {"panel": panel, "layer": 0, "head": head, "score": "logprob", "n": 12, "clusters": 12}
            rows.append({**where, **numbers, **found})
    return KINDS.find("attention-effect", "").checked(pl.DataFrame(rows, infer_schema_length=None), "attention-effect")


TABLES = {
    "bars": bars(),
    "lines": lines(),
    "heatmap": heatmap(),
    "decomposition": decomposition(),
    "spread": spread(),
    "strip": strip(),
    "trajectory": trajectory(),
    "effect": effect(),
    "attention-effect": attention_effect(),
}


@pytest.mark.parametrize("kind", TABLES)
@settings(deadline=None)  # the first one loads every kind
@given(data=st.data())
def test_no_reading_claims_more_than_q_allows(kind: str, data: st.DataObject) -> None:
    refuse_bare_claims(KINDS.find(kind, "").prose(data.draw(TABLES[kind]), LOOK))


@given(bars())
def test_a_bar_is_above_or_below_another_exactly_if_its_own_q_says_so(table: pl.DataFrame) -> None:
    rows = {(row["group"], row["bar"]): row for row in table.iter_rows(named=True)}
    for sentence in sentences_of(KINDS.find("bars", "").prose(table, LOOK)):
        found = re.match(r"(\w+) against (\w+), paired by prompt \(.*?\): (.*)\.$", sentence)
        if found is None:
            continue
        verdicts = dict(re.findall(r"(above|below|not significant|not tested) in (.*?)(?:; |$)", found[3]))
        for words, where in verdicts.items():
            for group in re.findall(r"Layer \d+", where):
                row = rows[group, found[1]]
                sure = row["q"] is not None and row["q"] < FALSE_DISCOVERIES
                sure = sure and abs(row["difference"]) > (row["floor"] or 0)
                expected = "not significant" if not sure else "above" if row["difference"] > 0 else "below"
                assert words == ("not tested" if row["q"] is None else expected)


@given(heatmap())
def test_a_map_counts_as_changed_exactly_the_heads_whose_own_q_says_so(table: pl.DataFrame) -> None:
    for title, cells in table.group_by("panel", maintain_order=True):
        sure = cells.filter(pl.col("q") < FALSE_DISCOVERIES, pl.col("value").abs() > pl.col("floor").fill_null(0))
        reading = KINDS.find("heatmap", "").prose(cells, LOOK)
        counts = [s for s in sentences_of(reading) if s.startswith("Change significantly")]
        if cells["q"].is_null().all():
            assert not counts, title
        else:
            (counted,) = counts
            assert f": {len(sure)} of " in counted


@given(lines())
def test_positions_count_as_different_exactly_if_their_own_q_says_so(table: pl.DataFrame) -> None:
    reading = KINDS.find("lines", "").prose(table, LOOK)
    counted = [s for s in sentences_of(reading) if s.startswith("Significantly different")]
    compared = [part for _, part in table.group_by("series", maintain_order=True) if part["q"].is_not_null().any()]
    assert len(counted) == len(compared)
    for sentence, part in zip(counted, compared, strict=True):
        sure = part.filter(pl.col("q") < FALSE_DISCOVERIES)["difference"]
        up = int((sure > 0).sum())
        assert f": {up} above and {len(sure) - up} below of " in sentence


@given(trajectory())
def test_the_last_place_of_a_line_is_above_or_below_the_first_exactly_if_its_own_q_says_so(table: pl.DataFrame) -> None:
    said = list(sentences_of(KINDS.find("trajectory", "").prose(table, LOOK)))
    for (name,), part in table.group_by("series", maintain_order=True):
        rows = part.sort("x").to_dicts()
        last = rows[-1]
        if rows[0]["against"] is not None or len(rows) == 1 or table["series"].n_unique() > 6:
            continue
        (sentence,) = [each for each in said if re.match(rf"(question, )?{name}: ", each)]
        sure = last["q"] is not None and last["q"] < FALSE_DISCOVERIES
        sure = sure and abs(last["difference"]) > (last["floor"] or 0)
        way = "above" if (last["difference"] or 0) > 0 else "below"
        assert (f"significantly {way} step 0" in sentence) == sure
        assert sure or f" {way} step 0 (" not in sentence


@given(effect())
def test_an_intervention_lowers_or_raises_a_score_exactly_if_its_own_q_says_so(table: pl.DataFrame) -> None:
    shown = table.filter(pl.col("role") == "intervention", pl.col("head").is_null(), pl.col("layer").is_null())
    said = list(sentences_of(KINDS.find("effect", "").prose(table, LOOK)))
    for row in shown.iter_rows(named=True) if shown["place"].n_unique() < 9 else ():
        (sentence,) = [each for each in said if each.startswith(f"{row['panel']}, {row['place']}: ")]
        sure = row["q"] is not None and row["q"] < FALSE_DISCOVERIES
        way = "raises" if row["value"] > 0 else "lowers"
        assert (f"significantly {way}" in sentence) == sure
        beyond = row["difference_q"] is not None and row["difference_q"] < FALSE_DISCOVERIES
        assert ("beyond the control (q" in sentence) == beyond


@given(attention_effect())
def test_attention_predicts_effect_exactly_if_the_interval_excludes_zero(table: pl.DataFrame) -> None:
    said = list(sentences_of(KINDS.find("attention-effect", "").prose(table, LOOK)))
    for (panel,), part in table.group_by("panel", maintain_order=True):
        start = f"{panel}: " if table["panel"].n_unique() > 1 else ""
        row = part.row(0, named=True)
        low, high = row["spearman_low"], row["spearman_high"]
        sure = row["spearman"] is not None and low is not None and not low <= 0 <= high
        mine = [each for each in said if each.startswith(f"{start}Spearman")]
        assert any("Attention predicts effect, significantly" in each for each in mine) == sure
    assert not any("because" in each for each in said)


def chroma(colour: str) -> float:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return (max(red, green, blue) - min(red, green, blue)) / 255


def test_no_default_colour_is_gray_which_means_not_significant() -> None:
    colours = [*selection.PALETTE, *selection.LINES, selection.OTHERS, *COLOURS.values(), OTHER_QUANTITIES]
    assert all(chroma(colour) >= 0.2 for colour in colours)
    assert len(set(selection.PALETTE)) == len(selection.PALETTE)
    assert selection.OTHERS not in selection.PALETTE
