"""The explorer in a real browser, on real runs: what is read off the page is what the Parquet files hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import numpy as np
import polars as pl
import pytest
import yaml
from playwright.sync_api import Browser

from attnscope.analysis.run import Run
from attnscope.figures.write import figure_of
from attnscope.report.answer import answer
from attnscope.study.schema import FigureSpec
from tests.explorer.conftest import HOSTILE, LABELS, Watched, numbers
from tests.handmade import exported
from tests.tolerances import SUMMED


def cells(watched: Watched) -> dict[tuple[int, int], float]:
    """What a drawn map holds, cell by cell."""
    found = watched.page.evaluate(
        """() => [...document.querySelectorAll(".chart path")].map((each) => each.__data__?.datum)
        .filter((datum) => datum?.value !== undefined).map((datum) => [datum.layer, datum.head, datum.value])"""
    )
    return {(layer, head): value for layer, head, value in found}


def click_cell(watched: Watched, layer: int, head: int) -> None:
    place = watched.page.evaluate(
        """([layer, head]) => { const found = [...document.querySelectorAll(".chart path")].find((each) => {
        const datum = each.__data__?.datum;
        return datum?.layer === layer && datum.head === head && datum.value !== undefined; });
        found.scrollIntoView({block: "center", behavior: "instant"});
        const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }""",
        [layer, head],
    )
    watched.page.mouse.click(*place)
    watched.page.wait_for_url(re.compile(rf"/{layer}/{head}\?"))
    watched.settle()


def test_the_overview_tells_question_figure_observations_evidence(server: str, watched: Watched, explored: Run) -> None:
    page = watched.open(f"{server}/explored")
    assert page.locator("h1").inner_text() == "Explored"
    text = page.locator("main").inner_text()
    assert "Where do tiny models look?" in text
    assert "2 models, 3 conditions, 9 prompts: 54 cells" in text
    assert page.locator(".chart svg").count() == 1
    figure = figure_of(explored, explored.study.figures[0])
    assert answer(explored)[0] in page.locator(".answer").inner_text()
    page.locator("summary", has_text="What the main figure shows").click()
    observed = figure.alt.split("Observations: ")[1].split(". ")[0]
    assert observed in page.locator(".observations").inner_text()
    assert "no share differs by more than" in text
    assert "None." in text
    page.get_by_role("button", name="change").click()
    watched.settle()
    assert page.locator(".chart svg").count() == 2
    page.locator("summary", has_text="Comparisons").click()
    page.get_by_text("filler minus none, one").wait_for()
    watched.check()


def test_a_click_on_a_cell_opens_the_head_and_its_numbers_are_the_files(
    server: str, watched: Watched, explored: Run
) -> None:
    page = watched.open(f"{server}/explored/map?measure=question&queries=all&model=two")
    drawn = cells(watched)
    where = {"model": "two", "condition": "none", "queries": "all", "token_class": "question"}
    held = numbers(explored, **where).group_by("layer", "head").agg(pl.col("mass").mean())
    assert drawn == {(row[0], row[1]): pytest.approx(row[2]) for row in held.iter_rows()}
    click_cell(watched, 1, 2)
    assert page.url.startswith(f"{server}/explored/two/1/2?")
    assert page.locator("h1").inner_text() == "Layer 1, head 2"
    mine = held.filter(layer=1, head=2)["mass"][0]
    rank = 1 + int((held["mass"] > mine).sum())
    page.locator("td", has_text="question, none").first.wait_for()
    row = page.locator("tr", has=page.locator("td", has_text="question, none")).first.inner_text()
    assert row.split("\t") == ["question, none", f"{mine:.4f}", f"{rank} of {len(held)}"]
    assert page.locator(".chart svg").count() == 3
    assert page.locator(".kinds li").count() == 3
    watched.check()


def test_changing_the_condition_changes_numbers_and_address(server: str, watched: Watched, explored: Run) -> None:
    page = watched.open(f"{server}/explored/map?measure=question")
    before = cells(watched)
    page.get_by_role("combobox", name="Condition").select_option("sentence")
    page.wait_for_url(re.compile("condition=sentence"))
    watched.settle()
    where = {"model": "one", "condition": "sentence", "queries": "last", "token_class": "question"}
    held = numbers(explored, **where).group_by("layer", "head").agg(pl.col("mass").mean())
    after = cells(watched)
    assert after == {(row[0], row[1]): pytest.approx(row[2]) for row in held.iter_rows()}
    assert after != before
    page.get_by_role("combobox", name="minus").select_option("condition:none")
    page.wait_for_url(re.compile("minus=none"))
    watched.settle()
    base = numbers(explored, **{**where, "condition": "none"}).group_by("layer", "head").agg(pl.col("mass").mean())
    both = held.join(base, on=["layer", "head"])
    assert cells(watched) == {(row[0], row[1]): pytest.approx(row[2] - row[3]) for row in both.iter_rows()}
    page.get_by_role("combobox", name="minus").select_option("model:two")
    page.wait_for_url(re.compile("minus_model=two"))
    watched.settle()
    page.get_by_role("combobox", name="Sort").select_option("effect")
    page.wait_for_url(re.compile("sort=effect"))
    watched.settle()
    assert "sorted by size" in page.locator(".caption").first.inner_text()
    page.go_back()
    watched.settle()
    assert "sort=depth" in page.url
    watched.check()


@pytest.mark.parametrize(
    "path",
    [
        "explored/map?measure=inserted&condition=filler&value=enrichment&queries=all",
        "explored/two/1/3?queries=last&condition=filler&condition=sentence&measure=sink",
        "explored/prompt/4?condition=filler&beside=model%3Atwo&layer=1&head=0&hide=marks",
        "explored/compare?left_layer=1&left_head=2&right_model=two&right_layer=0&right_head=3&right_condition=filler",
    ],
)
def test_an_address_in_a_new_window_shows_the_same(server: str, watched: Watched, browser: Browser, path: str) -> None:
    page = watched.open(f"{server}/{path}")
    shown = page.locator("main").inner_text()
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    again = Watched(context)
    try:
        again.open(page.url)
        for _ in range(100):
            if again.page.locator("main").inner_text() == shown:
                break
            again.page.wait_for_timeout(50)
        assert again.page.locator("main").inner_text() == shown
        again.check()
    finally:
        context.close()
    watched.check()


def test_prompt_text_is_shaded_by_what_the_file_holds_and_lined_up(
    server: str, watched: Watched, explored: Run
) -> None:
    page = watched.open(f"{server}/explored/prompt/4?beside=condition:filler&layer=1&head=2&queries=last")
    tokens = page.locator(".token")
    tokens.first.wait_for()
    held = [
        exported(explored).filter(model="one", condition=name, prompt=4, queries="last", layer=1, head=2)["received"][0]
        for name in ("none", "filler")
    ]
    assert tokens.count() == sum(map(len, held))
    told = explored.table("tokens").filter(model="one", condition="none", prompt=4).collect()
    place = next(at for at, segment in enumerate(told["segment"]) if segment == "question")
    other = explored.table("tokens").filter(model="one", condition="filler", prompt=4, base_position=place).collect()
    left = page.locator(f".token[data-side='0'][data-position='{place}']")
    left.hover()
    about = page.locator(".about").inner_text()
    assert f"at {place}: {number(held[0][place])}" in about
    assert f"filler: {number(held[1][other['position'][0]])} at {other['position'][0]}" in about
    assert page.locator(".token.pointed").count() == 2
    inserted = page.locator(".segment.inserted .token").first
    inserted.hover()
    assert "not in the other text" in page.locator(".about").inner_text()
    shade = float(left.evaluate("each => each.style.getPropertyValue('--heat')"))
    top = np.sort(held[0].to_numpy())[-2]
    assert shade == pytest.approx(min(1, held[0][place] / top), rel=SUMMED)
    page.get_by_label("question").uncheck()
    page.wait_for_url(re.compile("hide=question"))
    page.locator(".token.off").first.wait_for()
    watched.check()


def number(value: float) -> str:
    return f"{value:.4f}" if abs(value) >= 0.001 else re.sub(r"e([+-])0?", r"e\1", f"{value:.2e}")


def test_heads_are_walked_and_found_by_keyboard(server: str, watched: Watched) -> None:
    page = watched.open(f"{server}/explored/map")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    said = page.locator("#announced").inner_text()
    assert said.startswith("layer 1 head 2: ")
    assert page.locator(".chart .cursor").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/explored/one/1/2"))
    watched.settle()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile("/explored/one/0/2"))
    watched.settle()
    page.keyboard.press("ArrowUp")
    page.wait_for_url(re.compile("/explored/one/0/1"))
    watched.settle()
    page.keyboard.press("/")
    page.keyboard.type("1 3")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/explored/one/1/3"))
    watched.settle()
    page.keyboard.press("/")
    page.keyboard.type("number 7")
    page.get_by_role("link", name="prompt 7").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/explored/prompt/7"))
    page.locator(".token").first.wait_for()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("/explored/prompt/8"))
    watched.check()


def test_a_walk_by_keys_is_one_step_back_and_enter_still_follows_links(server: str, watched: Watched) -> None:
    page = watched.open(f"{server}/explored/map")
    page.keyboard.press("ArrowRight")
    page.get_by_role("link", name="Prompt").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/explored/prompt/0"))
    page.locator(".token").first.wait_for()
    for place in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        page.wait_for_url(re.compile(f"/explored/prompt/{place}"))
        page.locator("h1", has_text=f"Prompt {place}").wait_for()
        page.locator(".token").first.wait_for()
    page.keyboard.press(".")
    page.keyboard.press(".")
    assert page.locator(".about").inner_text() == page.locator("#announced").inner_text()
    assert " at 1: " in page.locator(".about").inner_text()
    page.go_back()
    page.wait_for_url(re.compile("/explored/map"))
    watched.settle()
    menu = page.get_by_role("combobox", name="Attention from")
    menu.focus()
    menu.select_option("all")
    page.wait_for_url(re.compile("queries=all"))
    assert page.evaluate("document.activeElement.closest('label')?.textContent").startswith("Attention from")
    watched.check()


def test_a_link_to_what_the_run_does_not_have_says_so(server: str, watched: Watched) -> None:
    page = watched.open(f"{server}/explored/map?condition=nope&measure=question")
    assert (
        "asks for condition 'nope', which this run does not have; showing none instead"
        in page.locator(".note").inner_text()
    )
    page = watched.open(f"{server}/explored/compare?left_layer=77")
    assert "asks for left_layer '77'" in page.locator(".note").first.inner_text()
    watched.check()


def test_a_prompts_number_is_found_before_words_that_have_it(server: str, watched: Watched) -> None:
    page = watched.open(f"{server}/explored")
    page.keyboard.press("/")
    page.keyboard.type("8")
    page.get_by_role("link", name="prompt 8").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/explored/prompt/8"))


def test_opened_figures_and_comparisons_are_in_the_address(server: str, watched: Watched, browser: Browser) -> None:
    page = watched.open(f"{server}/explored")
    page.get_by_role("button", name="change").click()
    watched.settle()
    page.locator("summary", has_text="Comparisons").click()
    page.get_by_text("filler minus none, one").wait_for()
    assert page.url.endswith("/explored?figure=change&comparisons=open")
    page.reload()
    watched.settle()
    page.get_by_text("filler minus none, one").wait_for()
    assert page.locator(".chart svg").count() == 2
    watched.check()


def test_two_heads_are_compared_within_prompts(server: str, watched: Watched, explored: Run) -> None:
    page = watched.open(f"{server}/explored/compare?queries=last&left_layer=1&left_head=2&right_condition=filler")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("right_layer=1"))
    watched.settle()
    assert "left_layer=1&left_head=2" in page.url
    page.locator("td", has_text="question").first.wait_for()
    row = page.locator("tr", has=page.locator("td", has_text=re.compile("^question$"))).inner_text().split("\t")
    where = {"model": "one", "queries": "last", "token_class": "question"}
    right = re.search(r"right_layer=(\d+)&right_head=(\d+)", page.url)
    assert right is not None
    left = numbers(explored, condition="none", layer=1, head=2, **where)["mass"].to_numpy()
    other = numbers(explored, condition="filler", layer=int(right.group(1)), head=int(right.group(2)), **where)[
        "mass"
    ].to_numpy()
    assert row[1:3] == [f"{left.mean():.4f}", f"{other.mean():.4f}"]
    assert row[3].lstrip("+").startswith(f"{(other - left).mean():.4f}")
    assert row[5] == "9"
    watched.check()


def test_a_phone_shows_every_page_without_scrolling_sideways(server: str, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark", has_touch=True)
    watched = Watched(context)
    try:
        for path in ("", "explored", "explored/map", "explored/one/1/2", "explored/prompt/4?beside=condition:filler",
                     "explored/compare", "hostile", "hostile/prompt/0"):  # fmt: skip
            page = watched.open(f"{server}/{path}")
            widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            assert widths[0] <= widths[1], path
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", ground)[:3])) < 60
        watched.check()
    finally:
        context.close()


def test_hostile_text_is_shown_and_never_run(server: str, watched: Watched, hostile: Run) -> None:
    model, condition = quote(LABELS["model"], safe=""), quote(LABELS["condition"], safe="")
    shown = "<script>window.pwned = 1</script></style><img src=x onerror='window.pwned = 2'>"
    paths = [
        "hostile",
        f"hostile/map?condition={condition}&minus=none",
        f"hostile/{model}/1/2",
        f"hostile/{quote(LABELS['other'], safe='')}/0/0?condition={condition}",
        f"hostile/prompt/2?beside=condition%3A{condition}",
        "hostile/compare",
        "hostile/<script>pwned=5</script>",
        "<img src=x onerror=pwned=6>",
    ]
    for path in paths:
        page = watched.open(f"{server}/{path}")
        assert not page.locator("main script, main style, main img, main svg[onload]").count(), path
        if path.startswith("hostile/prompt"):
            text = page.locator(".words").first.inner_text()
            assert "<script>window.pwned" in text
            assert "⟨RLO⟩gnirts⟨PDF⟩" in text.replace("·", "")  # a sign of three bytes is three tokens
        if path == "hostile":
            assert shown in page.locator("h1").inner_text()
            assert shown in page.locator("main").inner_text()
        page.keyboard.press("/")
        if page.locator("dialog[open]").count():
            page.keyboard.type("script")
            page.locator("#find-results a").first.wait_for()
            page.keyboard.press("Escape")
        status = [told for told in watched.complaints if "404" not in told]  # of addresses that are none
        assert status == [], path
        assert page.evaluate("typeof window.pwned") == "undefined", path
    assert HOSTILE in hostile.study.title  # type: ignore[operator]


def test_what_is_shown_can_be_saved(server: str, watched: Watched, explored: Run, tmp_path: Path) -> None:
    page = watched.open(f"{server}/explored/map?measure=question&condition=filler&minus=none")
    page.get_by_role("button", name="study lines").click()
    part = FigureSpec.model_validate(yaml.safe_load(page.get_by_label("Study lines").input_value())[0])
    figure = figure_of(explored, part)
    for name, ending in (("SVG", ".svg"), ("PNG", ".png"), ("CSV", ".csv")):
        with page.expect_download() as caught:
            page.get_by_role("button", name=name, exact=True).first.click()
        caught.value.save_as(tmp_path / f"map{ending}")
        assert caught.value.suggested_filename == f"map{ending}"
    assert (tmp_path / "map.svg").read_text().startswith("<svg")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "map.csv").read_text() == figure.table.write_csv()
    watched.check()


def test_a_head_or_a_run_that_does_not_exist_says_so(server: str, watched: Watched) -> None:
    for path, words in (
        ("explored/one/99/2", "layer 99 of one was not measured"),
        ("nothing", "there is no run 'nothing' here"),
        ("explored/three/1/2", "there is no model 'three'"),
        ("explored/prompt/99", "prompt 99 was not measured"),
        ("explored/nowhere", "there is no page 'nowhere'"),
        ("explored/constructor", "there is no page 'constructor'"),
        ("explored/a/b/c/d/e", "there is no page"),
        ("explored/prompt/abc", "there is no prompt 'abc'"),
    ):
        page = watched.open(f"{server}/{path}")
        page.get_by_text(words).first.wait_for()
    assert all("40" in told for told in watched.complaints)  # the browser tells statuses, nothing else


def test_screen_readers_get_the_reading_as_text(server: str, watched: Watched) -> None:
    page = watched.open(f"{server}/explored/map?measure=question&condition=filler&minus=none")
    chart = page.locator(".chart")
    assert "Change in attention" in (chart.get_attribute("aria-label") or "")
    assert chart.get_attribute("role") == "img"
    snapshot = page.locator("main").aria_snapshot()
    assert "Change significantly" in snapshot
    for label in ("Measure", "Model", "Condition", "minus", "Attention from", "Sort"):
        assert f'combobox "{label}"' in snapshot
    assert json.dumps(page.locator("html").get_attribute("lang")) == '"en"'
    watched.check()
