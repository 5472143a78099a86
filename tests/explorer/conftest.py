from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from attnscope.analysis.run import Run
from attnscope.measures.patterns import PATTERNS
from tests.analysis.conftest import CONDITIONS, performed, study
from tests.runs.conftest import save_tiny

HOSTILE = "<script>window.pwned = 1</script></style><img src=x onerror='window.pwned = 2'>\u202egnirts\u202c"
LABELS = {"model": "one/of <b>two</b> & 50%", "other": '"><svg onload=pwned=3>', "condition": "fill/er?&<i>"}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("explored-models")
    return save_tiny(home / "one", 1), save_tiny(home / "two", 2)


@pytest.fixture(scope="session")
def explored(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two models under three conditions, with figures."""
    told = study(
        [{"label": label, "source": str(source)} for label, source in zip(("one", "two"), models, strict=True)],
        title="Explored",
        question="Where do tiny models look?",
        measure={"queries": ["last", "all"], "measures": ["entropy", *PATTERNS]},
        figures=[
            {"name": "mass", "kind": "bars", "classes": ["question", "inserted"]},
            {"name": "change", "kind": "heatmap", "measure": "question", "difference": ["none", "filler"]},
        ],
    )
    return performed(told, tmp_path_factory.mktemp("explored"), "explored")


@pytest.fixture(scope="session")
def hostile(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which every name and text would like to be markup."""
    items = [{"intro": f"Look {number}. {HOSTILE}", "question": f"{HOSTILE} # {number}"} for number in range(6)]
    told = study(
        [
            {"label": LABELS["model"], "source": str(models[0])},
            {"label": LABELS["other"], "source": str(models[1])},
        ],
        title=HOSTILE,
        question=HOSTILE,
        prompts={"items": items, "plain": "{intro}\n{question}", "id": "intro"},
        conditions=["none", {**CONDITIONS[1], "name": LABELS["condition"], "label": HOSTILE}],
        classes={"</script><script>pwned=4</script>": {"characters": "#<", "label": HOSTILE}},
        figures=[{"name": "mass", "kind": "bars", "title": HOSTILE, "y": HOSTILE}],
    )
    return performed(told, tmp_path_factory.mktemp("hostile"), "hostile")


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """The command, and the address it printed."""
    command = [sys.executable, "-c", "from attnscope.cli.main import main; main()", "serve", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://" in line, process.communicate()
        yield line.split(": ", 1)[1].strip()
    finally:
        process.terminate()
        process.wait(20)


def free_port() -> str:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


@pytest.fixture(scope="session")
def server(explored: Run, hostile: Run) -> Iterator[str]:
    with serving(str(explored.path), str(hostile.path), "--port", free_port()) as address:
        yield address.rstrip("/")


class Watched:
    """A page that must not complain, and must not run what it shows."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _hear(self, told: ConsoleMessage) -> None:
        if told.type in ("error", "warning"):
            self.complaints.append(told.text)

    def open(self, address: str) -> Page:
        self.page.goto(address)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until everything has loaded and all charts are drawn."""
        self.page.locator("h1, .problem").first.wait_for()
        for _ in range(200):
            waiting = self.page.locator("main p.soft", has_text=re.compile("^…$")).count()
            if not waiting and not self.page.locator("figure[aria-busy]").count():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"still busy: {self.page.url}")

    def check(self) -> None:
        assert self.complaints == []
        assert self.page.evaluate("typeof window.pwned") == "undefined"


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    made = Watched(context)
    yield made
    context.close()
    made.complaints.clear()


def numbers(run: Run, **where: Any) -> Any:
    """Masses by prompt from the Parquet file alone."""
    return run.table("mass").filter(**where).sort("prompt").collect()
