"""The dummy plugin, installed for real into a folder of its own, and attnscope run with that folder on its path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.models import tiny

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MAIN = "from attnscope.cli.main import main; main()"

With = Callable[..., Outcome]
"""(folder of installed packages, *words) -> what the command did."""


def path_with(site: Path) -> list[str]:
    return [*map(str, (site, ROOT / "src", ROOT))]


@cache
def forking() -> subprocess.Popen[str]:
    """One for all tests: it ends when this process closes its input."""
    command = [sys.executable, "-B", str(HERE / "forked.py")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def python(site: Path, code: str, *words: object) -> Outcome:
    """What code does in a process of its own, with the packages of a folder installed."""
    path = path_with(site)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        request = {"code": code, "words": [*map(str, words)], "path": path, "environment": environment}
        server = forking()
        assert server.stdin
        assert server.stdout
        server.stdin.write(json.dumps({**request, "out": str(out), "err": str(err)}) + "\n")
        server.stdin.flush()
        return Outcome(int(server.stdout.readline()), out.read_text("utf-8"), err.read_text("utf-8"))


def attnscope(site: Path, *words: object) -> Outcome:
    """The command, with the packages of a folder installed."""
    return python(site, MAIN, *words)


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the dummy plugin; built from a copy, as building leaves files behind."""
    home = tmp_path_factory.mktemp("plugin")
    shutil.copy(HERE / "pyproject.toml", home)
    shutil.copytree(HERE / "attnscope_dummy", home / "attnscope_dummy")
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(home / "site"), str(home)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path_with(home))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
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
