"""The dummy plugin, installed for real into a folder of its own, and attnscope run with that folder on its path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.models import tiny

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MAIN = "from attnscope.cli.main import main; main()"

With = Callable[..., Outcome]
"""(folder of installed packages, *words) -> what the command did."""


def python(site: Path, *words: object) -> Outcome:
    path = os.pathsep.join(map(str, (site, ROOT / "src", ROOT)))
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def attnscope(site: Path, *words: object) -> Outcome:
    """The command, with the packages of a folder installed."""
    return python(site, "-c", MAIN, *words)


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the dummy plugin; built from a copy, as building leaves files behind."""
    home = tmp_path_factory.mktemp("plugin")
    shutil.copy(HERE / "pyproject.toml", home)
    shutil.copytree(HERE / "attnscope_dummy", home / "attnscope_dummy")
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    words = ["-m", "pip", "install", *offline, "--target", str(home / "site"), str(home)]
    done = python(home, *words)
    assert done.code == 0, done.err
    return home / "site"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny.save_model(folder, tiny.llama_config(max_position_embeddings=512, initializer_range=0.3))
    return folder


def offer(site: Path, group: str, value: str, code: str) -> Path:
    """A package with one module and one entry point, as an installer leaves it."""
    name, _, _ = value.partition(":")
    site.mkdir(exist_ok=True)
    (site / f"{name}.py").write_text(code, encoding="utf-8")
    facts = site / f"{name}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\nthing = {value}\n")
    return site
