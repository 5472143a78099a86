"""Comparisons say what differs, with the numbers of their csv, and what is not significant is shown to be so."""

from __future__ import annotations

import re

import polars as pl
import pytest

from attnscope.analysis.compared import Compared, compare
from attnscope.analysis.comparisons import comparisons
from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.run import Run
from attnscope.figures import sentences
from attnscope.figures.prose import Section, Table
from attnscope.report.comparison_tables import comparisons_document, facts, sheets

TIER = "command"


@pytest.fixture(scope="module")
def compared(reported: Run) -> list[Compared]:
    return [compare(each) for each in comparisons(reported)]


def test_a_document_has_one_section_per_comparison_with_its_tables_for_each_query_group(
    compared: list[Compared],
) -> None:
    document = comparisons_document(compared)
    names = [section.heading for section in document.sections]
    assert names[:3] == ["filler minus none, one", "sentence minus none, one", "filler minus sentence, one"]
    assert names[-1] == "How to read the tables"
    first = document.sections[0]
    titles = [block.heading for block in first.blocks if isinstance(block, Section)]
    assert "last: why it changes: diluted like all tokens, or redistributed" in titles
    assert "all: mass by class, mean over the heads compared" in titles
    assert not any("why it changes" in title for title in titles if title.startswith("all"))


def test_the_tables_have_the_numbers_of_the_csv(reported: Run, compared: list[Compared]) -> None:
    rows = pl.read_csv(reported.path / "comparisons" / "classes.csv").filter(
        pl.col("comparison") == "filler minus none, one",
        pl.col("queries") == "last",
        pl.col("quantity") == "mass",
        pl.col("token_class") == "question",
    )
    (row,) = rows.iter_rows(named=True)
    (sheet,) = [each for each in sheets(compared[0], "last") if each.title.startswith("mass by class")]
    (shown,) = [cells for cells in sheet.rows if cells[0] == "question"]
    columns = dict(zip(sheet.columns, shown, strict=True))
    assert columns["none"] == sentences.number(row["one"])
    assert columns["filler"] == sentences.number(row["two"])
    size = sentences.with_interval(row["difference"], row["low"], row["high"])
    assert columns["difference"] == (f"+{size}" if row["difference"] > 0 else size)


def test_what_is_not_significant_is_gray_and_in_italics(reported: Run, compared: list[Compared]) -> None:
    grayed = 0
    for each in compared:
        overall = each.overall.filter(pl.col("queries") == "last", pl.col("quantity") == "mass", pl.col("n") > 0)
        sure = dict(overall.select("token_class", "sure").iter_rows())
        (sheet,) = [found for found in sheets(each, "last") if found.title.startswith("mass by class")]
        assert isinstance(sheet.table, Table)
        for cells, gray in zip(sheet.table.rows, sheet.table.faint, strict=True):
            assert gray == (sure[cells[0]] is False)
            grayed += gray
    written = (reported.path / "comparisons" / "comparisons.md").read_text(encoding="utf-8")
    assert grayed
    assert len(re.findall(r"^\| \*", written, re.MULTILINE)) >= grayed
    assert f"In italics: not significant (q >= {FALSE_DISCOVERIES})" in written


def test_the_facts_say_how_many_prompts_were_paired_and_which_were_left_out(compared: list[Compared]) -> None:
    by_name = {each.comparison.name: facts(each) for each in compared}
    words = " ".join(by_name["filler minus none, one"])
    assert "n = 8 prompts, paired by prompt" in words
    assert "1 prompt that only one side has: left out." in words
    assert "Rounding causes differences in mass of" in words
    assert "left out" not in " ".join(by_name["filler minus sentence, one"])
