"""A name means one thing, or the error says what was near."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from attnscope.errors import AttnscopeError
from attnscope.models.load import load
from attnscope.models.sources import Source, find_source

from . import tiny


def test_names_mean_built_in_then_path_then_hub(llama: Path, gguf: Path) -> None:
    assert find_source("smollm2-135m-instruct").kind == "builtin"
    assert find_source(str(llama)) == Source("folder", str(llama), llama)
    assert find_source(str(gguf)) == Source("gguf", str(gguf), gguf)
    assert find_source("org/name") == Source("hub", "org/name")
    assert find_source("org/name@v1.0") == Source("hub", "org/name", revision="v1.0")
    assert find_source("org/name", "refs/pr/3") == Source("hub", "org/name", revision="refs/pr/3")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smollm2-135m", r"unknown model \('smollm2-135m'\): near: smollm2-135m-blocks, smollm2-135m-instruct"),
        ("zzz", r"unknown model.*known: gemma-3-270m, minilm-l6, smollm2-135m-blocks"),
        ("", r"unknown model"),
        ("./nowhere", r"no model at this path"),
        ("~/nowhere/at/all", r"no model at this path.*doesn't exist either"),
        ("missing.gguf", r"no model at this path"),
        ("org/name/more", r"no model at this path"),
    ],
)
def test_names_that_mean_nothing_are_refused(name: str, said: str) -> None:
    with pytest.raises(AttnscopeError, match=said):
        find_source(name)


def test_a_misspelt_path_says_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "llama-tiny").mkdir()
    with pytest.raises(AttnscopeError, match=r"near: llama-tiny"):
        find_source(str(tmp_path / "lama-tiny"))


def test_a_single_weight_file_is_refused_with_its_folder(llama: Path) -> None:
    with pytest.raises(AttnscopeError, match=rf"name the folder instead: {llama}"):
        find_source(str(llama / "model.safetensors"))


def test_an_empty_folder_and_an_adapter_without_a_base_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(AttnscopeError, match=r"not a model"):
        load(str(tmp_path))
    with pytest.raises(AttnscopeError, match=r"is an adapter, not a model.*doesn't name its base"):
        load(str(tiny.save_adapter(tmp_path / "adapter")))


def test_the_hub_in_offline_mode_is_out_of_reach() -> None:
    with pytest.raises(AttnscopeError, match=r"can't reach the Hub \(org/never-cached\).*HF_HUB_OFFLINE"):
        load("org/never-cached")


COMMIT = "c" * 40
REFUSALS = {"gated": (403, "GatedRepo"), "missing": (404, "RepoNotFound"), "unrevised": (404, "RevisionNotFound")}


class Hub(BaseHTTPRequestHandler):
    """A Hub on this machine: one model, and repositories that answer as the real Hub does for each refusal."""

    folder: Path

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        asked = self.folder / path.rpartition("/")[2]
        files = sorted(self.folder.iterdir())
        refusal = next((answer for name, answer in REFUSALS.items() if f"org/{name}" in path), None)
        if refusal:
            self.answer(refusal[0], b"", {"X-Error-Code": refusal[1], "X-Error-Message": refusal[1]})
        elif path.startswith("/api/models/org/tiny/tree/"):
            tree = [{"type": "file", "path": file.name, "size": file.stat().st_size, "oid": "0"} for file in files]
            self.answer(200, json.dumps(tree).encode())
        elif path.startswith("/api/models/org/tiny"):
            about = {"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "tags": [], "downloads": 0}
            about |= {"private": False, "siblings": [{"rfilename": file.name} for file in files]}
            self.answer(200, json.dumps(about).encode())
        elif "/resolve/" in path and asked.is_file():
            self.answer(200, asked.read_bytes(), {"X-Repo-Commit": COMMIT, "ETag": f'"{asked.name}"'})
        else:
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})

    def answer(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(llama: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Hub,), {"folder": llama}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


ASK = """
import json, sys
from attnscope.errors import AttnscopeError
from attnscope.models.load import load
for name in sys.argv[1:]:
    try:
        loaded = load(name)
        print(json.dumps([loaded.architecture, loaded.source.revision, sorted(loaded.fingerprint)]))
    except AttnscopeError as error:
        print(json.dumps(str(error)))
"""


def ask(endpoint: str, home: Path, *names: str) -> list[object]:
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_ETAG_TIMEOUT": "3"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *names], env={**os.environ, **settings}, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.model
def test_the_hub_gives_a_model_or_says_why_not(hub: str, tmp_path: Path) -> None:
    asked = ask(hub, tmp_path / "home", "org/tiny@v1", "org/gated", "org/missing", "org/unrevised@v9")
    model, gated, missing, unrevised = asked
    assert model == ["LlamaForCausalLM", "v1", ["model.safetensors"]]
    assert "is gated (org/gated)" in str(gated)
    assert "no such model on the Hub, or it is private (org/missing)" in str(missing)
    assert "no such revision (org/unrevised@v9)" in str(unrevised)

    cached, unknown = ask("http://127.0.0.1:9", tmp_path / "home", "org/tiny@v1", "org/other")
    assert cached == model
    assert "can't reach the Hub (org/other)" in str(unknown)
