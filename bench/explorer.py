"""How fast the explorer starts and answers a click, on a run of 500 prompts x 30 layers x 9 heads.

Every click requests a head, a map or a prompt that was not requested before, from a server that was just started, so
nothing is cached. `answered` is the time until the last of a click's requests is answered; `drawn` is the time until
the last chart of the page is drawn in Chromium.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnscope.report.write import report_run
from bench.random_run import make_run

QUIET = 4.0  # seconds for the server to load what it needs, as a user would take to look around
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def measure(folder: Path, prompts: int, clicks: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds per kind of click, and for starting."""
    say("creating a run of random numbers and its report")
    make_run(folder, prompts)
    report_run(folder)
    say("starting the server several times")
    starts = []
    for _ in range(max(3, clicks // 8)):
        with _server(folder) as (_, seconds):
            starts.append(seconds)
    seconds_by_click: dict[str, Any] = {"start": starts}
    with _server(folder) as (address, _):
        time.sleep(QUIET)
        for name, questions in _clicks(folder.name, prompts, clicks).items():
            say(f"clicking: {name}")
            seconds_by_click[name] = [_answered(address, each) for each in questions]
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if browser:
        with _server(folder) as (address, _):
            time.sleep(QUIET)
            say("clicking in Chromium")
            seconds_by_click["drawn"] = _drawn(address, folder.name, browser, clicks)
    return {"clicks": seconds_by_click}


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, float]]:
    """A running server: its address, and the seconds until it answered."""
    command = [sys.executable, "-c", "from attnscope.cli.main import main; main()", "serve", str(folder)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = (process.stdout or sys.stdin).readline().split(": ", 1)[1].strip()
        _asked(address, "api/runs", None)
        yield address, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


Question = tuple[str, dict[str, Any] | None]


def _clicks(run: str, prompts: int, count: int) -> dict[str, list[list[Question]]]:
    """Per kind of click, the requests that the page sends; `count` clicks of each."""
    chance = random.Random(0)  # noqa: S311
    heads = chance.sample([(layer, head) for layer in range(30) for head in range(9)], count)
    base = f"api/runs/{run}"

    def figure(**part: Any) -> Question:
        return f"{base}/figure?width=1240", {"name": part["kind"], **part}

    def head(layer: int, head_: int) -> list[Question]:
        """Kind, ranks and lines are requested first, bars and spread once these have arrived."""
        place: dict[str, Any] = {"models": ["base"], "layers": [layer], "heads": [head_]}
        asked = urllib.parse.urlencode({"model": "base", "layer": layer, "head": head_, "queries": "all"})
        panels = [{"model": "base", "layer": layer, "head": head_}]
        return [
            (f"{base}/head?{asked}", None),
            figure(kind="lines", queries="all", panels=panels),
            figure(kind="bars", queries="all", **place),
            figure(kind="spread", queries="all", measure="hash", **place),
        ]

    classes = ["hash", "star", "marks", "words", "other", "sink", "uniform"]
    maps = [
        figure(kind="heatmap", measure=name, queries=queries, models=[model], conditions=[condition])
        for name in classes
        for queries in ("last", "all")
        for model in ("base", "tuned")
        for condition in ("none", "filler")
    ]
    changes = [
        figure(kind="heatmap", measure=name, queries=queries, **side)
        for name in classes
        for queries in ("last", "all")
        for side in (
            {"models": ["base"], "difference": ["none", "filler"]},
            {"models": ["tuned"], "difference": ["none", "filler"]},
            {"conditions": ["none"], "difference": ["base", "tuned"]},
        )
    ]
    texts: list[list[Question]] = []
    for number in chance.sample(range(prompts), min(count, prompts)):
        asked = {"prompt": number, "model": "base", "queries": "all", "layer": 3, "head": 4}
        sides = [urllib.parse.urlencode({**asked, "condition": name}) for name in ("none", "filler")]
        texts.append([(f"{base}/prompt?{side}", None) for side in sides])
    return {
        "map": [[each] for each in chance.sample(maps, min(count, len(maps)))],
        "change": [[each] for each in chance.sample(changes, min(count, len(changes)))],
        "head": [head(*each)[:2] for each in heads],
        "rest": [head(*each)[2:] for each in heads],
        "prompt": texts,
    }


def _asked(address: str, path: str, body: dict[str, Any] | None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", data, {"content-type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        content: bytes = answer.read()
    return content


def _answered(address: str, questions: list[Question]) -> float:
    """Seconds until all requests of a click are answered; a browser sends them at once."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(questions)) as together:
        list(together.map(lambda each: _asked(address, *each), questions))
    return time.perf_counter() - began


def _drawn(address: str, run: str, browser: str, count: int) -> list[float]:
    """Seconds from a click on the next head until all charts of the page are drawn."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = started.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}{run}/base/0/0")
        page.locator(".chart svg").nth(2).wait_for()
        for _ in range(min(count, 25)):
            taken.append(page.evaluate(_STEP) / 1000)
        started.close()
    return taken


_STEP = """() => new Promise((resolve) => {
  const began = performance.now();
  document.querySelector('a[aria-label="next layer"]').click();
  const look = () => {
    const figures = [...document.querySelectorAll("figure")];
    const done = figures.length === 3 && figures.every((each) => !each.hasAttribute("aria-busy"));
    if (done) resolve(performance.now() - began); else setTimeout(look, 5);
  };
  setTimeout(look, 5);
})"""
