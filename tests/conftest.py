"""Fixtures that every room's tests may use, and the tier of each test: unit, command, model or browser.

A test that uses the browser, or one of the models below, is in that tier by itself; other tests that need real weights
or a long time say so (`pytest.mark.model`, on the test or for a whole file). Files that run whole commands and studies
on tiny models say `TIER = "command"`. All others are unit tests. Outside the
model tier the model cache is empty and nothing can be downloaded, so a test that needs real weights without saying so
fails.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import run

os.environ.setdefault("OMP_NUM_THREADS", "1")  # each process of pytest-xdist has a core
os.environ.setdefault("HF_HUB_OFFLINE", "1")

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from attnscope.lens import Lens
    from attnscope.models.tokenization import Tokenization

__all__ = ["run"]

TIER_OF_FIXTURE = {"browser": "browser", "smollm2": "model", "smollm2_tokenization": "model"}
SMOLLM2 = "smollm2-135m-instruct"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def smollm2() -> Lens:
    """The default model."""
    import attnscope

    return attnscope.load(SMOLLM2)


@pytest.fixture(scope="session")
def smollm2_tokenization() -> Tokenization:
    """The default model's tokenizer, without its weights."""
    from attnscope.models.load import look_up

    return look_up(SMOLLM2).tokenization


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of a process: playwright can't be started twice."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "these tests need Chromium: on Debian 'apt-get install chromium', or set CHROMIUM to its path"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("model") is None:
            item.add_marker(tier_of(item))


def tier_of(item: pytest.Item) -> str:
    """The tier that a test's fixtures or its file put it in."""
    tiers = {TIER_OF_FIXTURE[name] for name in getattr(item, "fixturenames", ()) if name in TIER_OF_FIXTURE}
    usual: str = getattr(getattr(item, "module", None), "TIER", "unit")
    return next((tier for tier in ("model", "browser") if tier in tiers), usual)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker("model"):
        return (yield)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as empty:
        patch.setenv("ATTNSCOPE_CACHE", empty)
        patch.setenv("PIP_NO_INDEX", "1")
        return (yield)
