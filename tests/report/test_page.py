"""The report is one file with everything in it, which shows text as text and asks nobody for anything."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from attnscope.analysis.run import Run
from attnscope.figures.prose import alt_text
from attnscope.figures.validation import options_of
from attnscope.figures.write import make_figure
from attnscope.report.evidence import evidence_card
from attnscope.report.files import changed_files, is_reported
from attnscope.report.write import report_run
from tests.report.conftest import FIGURES, HOSTILE

TIER = "command"

PARTS = ("figures", "comparisons")


class Parsed(HTMLParser):
    """Elements with their attributes, the text outside scripts, and what each script has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.scripts: dict[str, str] = {}
        self.words = ""
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._open.append((tag, dict(attrs)))
        if tag in ("h1", "h2"):
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script":
            self.scripts[attributes.get("id") or f"code-{len(self.scripts)}"] = data
        elif tag != "style":
            self.words += data
            if tag in ("h1", "h2"):
                self.headings[-1] += data

    def attributes(self, name: str) -> list[str | None]:
        return [known[name] for _, known in self.elements if name in known]


def page_of(run: Run) -> Parsed:
    return Parsed(run.path / "report.html")


def test_a_report_has_its_sections_in_the_order_of_the_study(reported: Run) -> None:
    page = page_of(reported)
    titles = [json.loads(page.scripts["charts"])[place]["title"]["text"] for place in range(len(FIGURES))]
    rest = [
        "Comparisons",
        "Does it depend on how one counts?",
        "Kinds of head",
        "Every head",
        "Prompts",
        "Evidence",
        "How to run it again",
    ]
    assert page.headings == ["A tiny report", *titles, *rest]
    assert "Where does it look?" in page.words
    assert "1 model, 3 conditions, 9 prompts" in page.words


def test_every_figure_is_on_the_page_with_its_chart_its_reading_and_its_numbers(reported: Run) -> None:
    page = page_of(reported)
    charts = json.loads(page.scripts["charts"])
    places = [known["id"] for tag, known in page.elements if tag == "div" and known.get("role") == "img"]
    assert places == [f"chart-{number}" for number in range(len(FIGURES))]
    for number, part in enumerate(reported.study.figures):
        assert charts[number] == json.loads((reported.path / "figures" / f"{part.name}.vl.json").read_text("utf-8"))
        figure = make_figure(reported, options_of(part))
        assert page.attributes("aria-label")[number] == alt_text(figure.reading)
        for section in figure.reading.sections:
            assert section.heading in page.words
        if "value" in figure.table.columns:
            assert f"{figure.table['value'][0]:.5g}" in page.words


def test_dropped_prompts_and_the_way_to_run_again_are_shown(reported: Run) -> None:
    words = page_of(reported).words
    assert "2 cells were dropped" in words
    assert "one, filler, prompt 3:" in words
    assert "attnscope run" in words.split("How to run it again")[1]


def test_hostile_text_is_shown_as_text_and_makes_no_element(hostile: Run) -> None:
    page = page_of(hostile)
    assert page.headings[0] == HOSTILE
    assert page.words.count(HOSTILE) > 20
    allowed = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "h4", "p", "section", "div", "ul"}
    allowed |= {"li", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "pre", "strong", "script"}
    assert {tag for tag, _ in page.elements} <= allowed
    assert not [name for _, known in page.elements for name in known if name.startswith("on")]
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 4
    (first, *_) = json.loads(page.scripts["charts"])
    assert first["title"]["text"] == HOSTILE
    assert "{{ 7 * 7 }}" in page.words


@pytest.mark.parametrize("name", ["reported", "hostile"])
def test_a_report_opens_from_a_file_draws_every_chart_and_asks_nobody(
    name: str, request: pytest.FixtureRequest, browser: Browser, tmp_path: Path
) -> None:
    run: Run = request.getfixturevalue(name)
    alone = tmp_path / "mailed.html"  # away from the run
    shutil.copy(run.path / "report.html", alone)
    page = browser.new_page()
    asked: list[str] = []
    trouble: list[str] = []
    page.on("request", lambda each: asked.append(each.url))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(alone.as_uri())
    want = len(run.study.figures) + page.locator("#chart-chooser").count()
    drawn = "count => document.querySelectorAll('.chart svg.marks').length === count"
    page.wait_for_function(drawn, arg=want)
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [alone.as_uri()]
    assert trouble == []
    assert page.evaluate("typeof window.pwned") == "undefined"
    page.close()


def test_the_evidence_on_the_page_is_that_of_the_files(reported: Run) -> None:
    document = evidence_card(reported)
    written: dict[str, Any] = json.loads((reported.path / "evidence.json").read_text(encoding="utf-8"))
    assert [section["heading"] for section in written["sections"]] == [
        *("How much was checked", "one", "Prompts", "Made with")
    ]
    shown = page_of(reported).words.split("Evidence", 1)[1]
    for section in written["sections"]:
        for item in section["items"]:
            assert "".join(words["text"] for words in item) in shown
            assert "".join(words["text"] for words in item) in alt_text(document)


def test_a_report_of_another_state_of_the_run_is_not_taken_for_this_one(reported: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(reported.path, copy)
    assert is_reported(copy)
    index = copy / "report.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    index.write_text(json.dumps({**content, "tables": "0" * 64}), encoding="utf-8")
    assert not is_reported(copy)
    assert changed_files(copy) == []  # the files are whole, of another state
    report_run(copy)
    assert is_reported(copy)


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_every_damaged_file_of_a_report_is_named_and_written_again(reported: Run, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(reported.path, copy)
    listed = list(json.loads((copy / "report.json").read_text(encoding="utf-8"))["files"])
    on_disk = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.parent.name in PARTS}
    assert {"report.html", "answer.json", "evidence.md", "evidence.json"} | on_disk == set(listed)
    for name in listed:
        path = copy / name
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
        assert changed_files(copy) == [name]
        assert not is_reported(copy)
        path.write_bytes(data)
    (copy / listed[0]).write_bytes(b"")
    report_run(copy)
    assert is_reported(copy)


def test_files_of_figures_that_the_study_no_longer_has_are_removed(reported: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(reported.path, copy)
    older = [copy / "figures" / name for name in ("old.svg", "old.csv")]
    for path in older:
        path.write_text("of an older study")
    report_run(copy)
    assert not any(path.exists() for path in older)
    assert (copy / "figures" / "mass.svg").is_file()
