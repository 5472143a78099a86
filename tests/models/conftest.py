from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before the Hub client is imported

from pathlib import Path

import pytest

from . import tiny


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("ATTNSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    tiny.save_model(folder)
    return folder


@pytest.fixture(scope="session")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def gguf(gguf_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GGUF file, and a cache for what is converted from it that goes with the tests."""
    monkeypatch.setenv("ATTNSCOPE_CACHE", str(gguf_file.parent / "cache"))
    return gguf_file
