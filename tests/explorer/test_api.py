"""The explorer's API: every response fits its schema, and nothing but the served runs can be reached."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from attnscope.analysis.run import Run
from attnscope.explorer.app import make_app
from attnscope.explorer.guard import HEADERS, Guard
from attnscope.explorer.runs import ServedRuns
from attnscope.explorer.serve import hosts_of
from tests.handmade import sealed

TIER = "command"

KNOWN: dict[str, list[Any]] = {
    "run": ["explored"],
    "model": ["one", "two"],
    "condition": ["none", "filler"],
    "queries": ["last", "all"],
    "layer": [0, 1],
    "head": [0, 3],
}


@pytest.fixture(scope="module")
def api(explored: Run) -> Any:
    return schemathesis.openapi.from_asgi("/api/openapi.json", make_app(ServedRuns([explored.path])))


def questions(api: Any, mode: schemathesis.GenerationMode, change: Callable[[Any], None]) -> None:
    """Send requests to every address of the API, and check each response against its schema."""
    asked = 0
    for result in api.get_all_operations():
        operation = result.ok()

        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            change(case)
            case.call_and_validate()

        with contextlib.suppress(Unsatisfiable):  # a request without a choice can't be wrong
            ask()
            asked += 1
    assert asked >= 9


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_every_response_fits_its_schema(api: Any, mode: schemathesis.GenerationMode) -> None:
    questions(api, mode, lambda case: None)


def test_requests_for_what_the_run_has_fit_too(api: Any) -> None:
    """Most random words name nothing; here they name the run, its models, conditions, layers and heads."""

    def change(case: Any) -> None:
        if "run" in (case.path_parameters or {}):
            case.path_parameters["run"] = "explored"
        for name in list(case.query or {}):
            words = KNOWN.get(name.removeprefix("left_").removeprefix("right_"))
            if words:
                case.query[name] = words[len(str(case.query[name])) % len(words)]
        if isinstance(case.body, dict) and "kind" in case.body:
            kinds = ["bars", "lines", "heatmap", "strip", "spread", "decomposition"]
            case.body["kind"] = kinds[len(str(case.body)) % len(kinds)]
            for key in ("models", "conditions", "classes", "measure", "queries", "panels", "difference", "layers"):
                case.body.pop(key, None)

    questions(api, schemathesis.GenerationMode.POSITIVE, change)


@pytest.fixture(scope="module")
def client(explored: Run) -> TestClient:
    return TestClient(make_app(ServedRuns([explored.path])), raise_server_exceptions=False)


def test_nothing_but_the_runs_given_can_be_reached(explored: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    shutil.copytree(explored.path, secret)
    client = TestClient(make_app(ServedRuns([explored.path])), raise_server_exceptions=False)
    for path in (
        "/api/runs/../secret",
        "/api/runs/..%2fsecret",
        f"/api/runs/{str(secret).replace('/', '%2f')}",
        "/api/runs/explored%2f..%2fsecret",
        "/api/runs/secret",
        "/static/app.py",
        "/static/..%2fapp.py",
        "/static/%2fetc%2fpasswd",
        "/api/nothing",
    ):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert set(answer.json()) == {"what", "where", "allowed", "todo"}
    assert client.get("/%2e%2e/%2e%2e/etc/passwd").text.startswith("<!doctype html>")  # says there is no such view
    assert client.get("/api/runs/explored/figure").status_code == 405
    told = client.get("/api/runs/nothing").json()
    assert "known: explored" in told["allowed"]


def test_errors_show_no_path_of_this_machine(explored: Run, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(explored.path, spoilt)
    (spoilt / "mass.parquet").unlink()
    answer = TestClient(make_app(ServedRuns([spoilt]))).get("/api/runs/spoilt/comparisons")
    assert answer.status_code == 409
    assert "table 'mass' is missing" in answer.json()["what"]
    assert str(tmp_path) not in answer.text


class TestGuard:
    @staticmethod
    def client(explored: Run, token: str | None = None) -> TestClient:
        app = Guard(make_app(ServedRuns([explored.path])), hosts_of("127.0.0.1", 81), token, 81)
        return TestClient(app, base_url="http://127.0.0.1:81", headers={"host": "127.0.0.1:81"})

    def test_every_response_has_a_strict_policy(self, explored: Run) -> None:
        client = self.client(explored)
        for path in ("/", "/api/runs", "/static/app.js", "/static/none.js", "/api/runs/none"):
            headers = client.get(path).headers
            for name, value in HEADERS.items():
                assert headers[name] == value
        policy = HEADERS["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:82", "", "127.0.0.1:81.evil.example"])
    def test_another_host_is_refused(self, explored: Run, host: str) -> None:
        assert self.client(explored).get("/api/runs", headers={"host": host}).status_code == 421

    def test_requests_from_other_sites_are_refused(self, explored: Run) -> None:
        client = self.client(explored)
        for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            assert client.get("/api/runs", headers=headers).status_code == 403
        assert client.get("/api/runs", headers={"origin": "http://127.0.0.1:81"}).status_code == 200
        linked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert client.get("/", headers=linked).status_code == 200  # someone followed a link

    def test_without_the_token_nothing_is_served(self, explored: Run) -> None:
        client = self.client(explored, "right")
        for path in ("/", "/?token=wrong", "/api/runs", "/static/app.js", "/api/openapi.json?token="):
            assert client.get(path).status_code == 401, path
        assert client.get("/?" + "&".join("a=b" for _ in range(500))).status_code == 401
        first = client.get("/explored?token=right")
        assert first.status_code == 200
        assert "HttpOnly; SameSite=Strict" in first.headers["set-cookie"]
        assert client.get("/api/runs").status_code == 200  # the cookie is enough from now on

    def test_a_huge_body_is_not_read(self, explored: Run) -> None:
        answer = self.client(explored).post("/api/runs/explored/figure", content=b" " * 2_000_000)
        assert answer.status_code == 413


def test_names_listened_to_are_those_of_the_address() -> None:
    assert hosts_of("127.0.0.1", 8) == {"127.0.0.1:8", "localhost:8", "[::1]:8"}
    assert hosts_of("192.0.2.7", 8) == {"192.0.2.7:8"}
    assert "127.0.0.2:8" in hosts_of("127.0.0.2", 8)
    assert {"192.0.2.7:80", "192.0.2.7"} == hosts_of("192.0.2.7", 80)
    assert "localhost:8" in hosts_of("0.0.0.0", 8)  # noqa: S104


def test_the_browser_gets_no_more_than_it_shows(client: TestClient, explored: Run) -> None:
    """A map is one number per head, whatever the run's size; a line is one per position."""
    part = {"name": "map", "kind": "heatmap", "measure": "question", "models": ["one"], "conditions": ["none"]}
    chart = client.post("/api/runs/explored/figure", json=part).json()["chart"]
    rows = [row for data in chart["datasets"].values() for row in data]
    assert len(rows) == len(explored.layers("one")) * len(explored.heads("one"))
    prompt = client.get(
        "/api/runs/explored/prompt",
        params={"prompt": 1, "model": "one", "condition": "none", "queries": "last"},
    ).json()
    assert len(prompt["tokens"]) == prompt["count"] < 200


def test_a_long_prompt_comes_in_parts_and_a_long_token_is_cut(explored: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("attnscope.explorer.views.prompt.MOST_TOKENS", 10)
    home = tmp_path / "long"
    shutil.copytree(explored.path, home)
    shown = Run(home).table("tokens").collect()
    there = (pl.col("model") == "one") & (pl.col("condition") == "none") & (pl.col("prompt") == 0)
    huge = pl.when(there & (pl.col("position") == 4)).then(pl.lit("<" * 100_000)).otherwise(pl.col("text"))
    shown.with_columns(text=huge).write_parquet(home / "tokens.parquet")
    sealed(home)
    client = TestClient(make_app(ServedRuns([home])))
    asked: dict[str, Any] = {"prompt": 0, "model": "one", "condition": "none", "queries": "last"}
    first = client.get("/api/runs/long/prompt", params=asked).json()
    rest = client.get("/api/runs/long/prompt", params={**asked, "first": 10}).json()
    assert [token["position"] for token in first["tokens"]] == list(range(10))
    assert rest["tokens"][0]["position"] == 10
    assert (len(first["tokens"][4]["text"]), first["tokens"][4]["length"]) == (400, 100_000)
    assert client.get("/api/runs/long/prompt", params={**asked, "first": 10_000}).json()["tokens"] == []


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"kind": "heatmap", "measure": "questoin"}, "there is no class or measure 'questoin'"),
        ({"kind": "heatmap", "models": ["three"]}, "there is no 'three' in models"),
        ({"kind": "pie"}, "unknown kind of figure 'pie'"),
        ({"kind": "lines", "panels": [{"model": "one", "layer": 77, "head": 0}]}, "layer 77 of one was not measured"),
        ({"kind": "strip", "prompt": 77}, "prompt 77 was not measured"),
        ({"kind": "heatmap", "difference": ["none", "one"]}, "can't be compared"),
    ],
)
def test_a_figure_that_cant_be_is_refused_in_words(client: TestClient, part: dict[str, Any], words: str) -> None:
    answer = client.post("/api/runs/explored/figure", json={"name": "x", **part})
    assert answer.status_code == 409
    assert words in answer.json()["what"]
