"""What the documentation shows works, and its generated pages are up to date."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from attnscope.figures.kinds.lines import LinesOptions
from attnscope.figures.validation import with_options
from attnscope.study.file import bundled_studies, parse_study
from tests.cli.conftest import Run
from tests.explorer.conftest import free_port, serving

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_generated_pages_are_what_make_docs_would_write() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
    for path, text in made["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: run make docs"


@pytest.mark.model
def test_the_readmes_python_runs() -> None:
    measuring, recording = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(measuring, names)  # noqa: S102
    assert names["record"].received.shape[:3] == (2, 9, 2)
    exec(recording, names)  # noqa: S102
    assert [step.queries for step in names["recording"].steps] == [5] + [1] * 7


@pytest.mark.model
def test_the_encoders_first_position_is_its_sink_whatever_stands_there() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "encoder.md").read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102
    with_cls, without = (np.mean(names[name], 0) for name in ("with_cls", "without"))
    page = (ROOT / "docs" / "encoder.md").read_text("utf-8")
    for start, means in (("| `[CLS]`, in the", with_cls), ("| the first word, without", without)):
        (line,) = [line for line in page.splitlines() if line.startswith(start)]
        assert [float(cell) for cell in line.split("|")[2:-1]] == pytest.approx(means, abs=0.0051)


@pytest.mark.model
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_study_can_be_run(path: Path, run: Run) -> None:
    done = run("run", path, "--limit", "2", "--dry-run")
    assert done.code == 0, done.err


def test_the_readmes_study_file_is_a_study(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "README.yaml").write_text(text, encoding="utf-8")
    study = with_options(parse_study(text, "README.md"), tmp_path / "README.yaml")
    assert isinstance(study.figures[0], LinesOptions)
    assert study.figures[0].panels


def test_the_published_readings_are_drawn_as_their_page_says(run: Run, tmp_path: Path) -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "readings.py"))["symbols"]()
    assert (ROOT / "reference" / "symbols.csv").read_text() == made.write_csv()
    words = ["figure", "bars", ROOT / "reference" / "symbols.csv", "-o", tmp_path / "published.svg"]
    assert run(*words, "--y", "Total Attention (Sum)").code == 0
    assert "Qwen-Phys" in (tmp_path / "published.svg").read_text()


@pytest.mark.model
def test_the_readmes_commands_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").mkdir()
    Path("examples/block.txt").write_text((ROOT / "examples" / "block.txt").read_text(encoding="utf-8"))
    lines = [line for line in README.splitlines() if line.startswith("attnscope ")]
    assert len(lines) == 14
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        if words[0] == "check":
            words += ["--tokens", "16"]
        if words[0] in ("run", "tokens"):
            words += ["--limit", "2"]
        if words[0] == "run" and words[1] in bundled_studies():
            words += ["--dry-run"]  # tests/test_studies.py runs them
        if words[0] == "serve":
            with serving(*words[1:], "--port", free_port()) as address, urlopen(f"{address}api/runs") as answer:  # noqa: S310
                assert b"finished" in answer.read()
            continue
        done = run(*words)
        assert done.code == 0, (line, done.err)
        assert done.out


def test_every_link_and_make_target_in_the_docs_is_there() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if link.startswith("https://"):
                continue
            assert (page.parent / link).exists(), (page.name, link)
        for target in re.findall(r"`make (\w+)`", text):
            assert target in targets, (page.name, target)


def test_the_readme_counts_the_architectures_right() -> None:
    from attnscope.models.verified import BY_EAGER, BY_INTERFACE

    (count,) = re.findall(r"(\d+) architectures are compared", README)
    assert int(count) == len(BY_INTERFACE) + len(BY_EAGER)
