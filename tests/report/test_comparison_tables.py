"""Comparisons say what differs, with the numbers of their csv, and what is not significant is shown to be so."""

from __future__ import annotations

import re

import polars as pl
import pytest

from attnscope.analysis.compared import Compared, compare
from attnscope.analysis.comparisons import comparisons
from attnscope.analysis.run import Run
from attnscope.figures import sentences
from attnscope.figures.prose import Bullets, Section, Table, markdown
from attnscope.report.answer import answer
from attnscope.report.comparison_page import comparison_page
from attnscope.report.comparison_tables import comparison_section, facts, sheets

TIER = "command"


@pytest.fixture(scope="module")
def compared(reported: Run) -> list[Compared]:
    return [compare(each) for each in comparisons(reported)]


def test_a_page_has_a_table_for_each_kind_of_comparison_and_the_answer_first(
    reported: Run, compared: list[Compared]
) -> None:
    page = comparison_page(compared)
    names = [section.heading for section in page.sections]
    assert names[0] == "In short"
    assert page.sections[0].blocks == (Bullets(tuple(answer(reported))),)
    assert any(name.startswith("Conditions against the base prompt") for name in names)
    assert any(name.startswith("Conditions against their controls") for name in names)
    assert any(name.startswith("Who carries it") for name in names)
    assert names[-1] == "More"
    assert len(markdown(page).splitlines()) < 60


def test_every_cell_of_the_page_says_what_its_own_q_says(compared: list[Compared]) -> None:
    page = comparison_page(compared)
    by_name = {each.comparison.name: each for each in compared}
    seen = 0
    for section in page.sections:
        if not section.heading.startswith(("Conditions", "Models")):
            continue
        queries = re.findall(r"\(queries: (\w+)\)$", section.heading)[0]
        (table,) = [block for block in section.blocks if isinstance(block, Table)]
        for row in table.rows:
            overall = by_name[row[0]].overall.filter(pl.col("quantity") == "mass", pl.col("queries") == queries)
            of_class = {each["token_class"]: each for each in overall.iter_rows(named=True)}
            for name, cell in zip(table.columns[1:], row[1:], strict=True):
                each = of_class[name]
                if cell == "-":
                    assert (each["one"] or 0, each["two"] or 0) == (0, 0)
                    continue
                assert sentences.number(each["difference"]) in cell
                assert ("q " in cell) == (each["q"] is not None)
                assert ("ns" in cell) == (each["sure"] is False)
                seen += 1
    assert seen > 5


def test_a_comparison_of_the_report_has_its_tables_for_each_query_group(
    reported: Run, compared: list[Compared]
) -> None:
    first = comparison_section(compared[0], reported.queries)
    assert first.heading == "filler minus none, one"
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
    page = (reported.path / "report.html").read_text(encoding="utf-8")
    assert grayed
    assert page.count('<tr class="gray">') >= grayed
    assert "Gray: not significant, or within rounding error." in page


def test_the_facts_say_how_many_prompts_were_paired_and_which_were_left_out(compared: list[Compared]) -> None:
    by_name = {each.comparison.name: facts(each) for each in compared}
    words = " ".join(by_name["filler minus none, one"])
    assert "n = 8 prompts, paired by prompt" in words
    assert "1 prompt that only one side has: left out." in words
    assert "Rounding causes differences in mass of" in words
    assert "left out" not in " ".join(by_name["filler minus sentence, one"])
