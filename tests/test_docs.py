"""What the documentation shows works, and its generated pages are up to date."""

from __future__ import annotations

import inspect
import re
import runpy
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import yaml

import attnscope
from attnscope.figures.kinds.lines import LinesOptions
from attnscope.figures.validation import with_options
from attnscope.studies import request_study
from attnscope.study.file import bundled_studies, parse_study
from tests.analysis.conftest import CONDITIONS, performed, study
from tests.cli.conftest import Run
from tests.explorer.conftest import free_port, serving
from tests.models import tiny
from tests.runs.conftest import CHAT

TIER = "command"

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
    shown = with_options(parse_study(text, "README.md"), tmp_path / "README.yaml")
    assert isinstance(shown.figures[0], LinesOptions)
    assert shown.figures[0].panels


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
    assert len(lines) == 17
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


def anchors(page: Path) -> set[str]:
    """What a link can point to on a page, as GitHub names its headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_and_make_target_in_the_docs_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for link, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
            if link.startswith("https://"):
                continue
            target = page.parent / link if link else page
            assert target.exists(), (page.name, link)
            assert not heading or heading in anchors(target), (page.name, link, heading)
        for target in re.findall(r"`make ([\w-]+)`", text):
            assert target in targets, (page.name, target)


def test_the_readme_counts_the_architectures_right() -> None:
    from attnscope.models.verified import BY_EAGER, BY_INTERFACE

    (count,) = re.findall(r"(\d+) architectures are compared", README)
    assert int(count) == len(BY_INTERFACE) + len(BY_EAGER)


DEFAULT = "smollm2-135m-instruct"
EXAMPLES = (
    "definitions.md",
    "explorer.md",
    "how-it-works.md",
    "interventions.md",
    "measures.md",
    pytest.param("studies.md", marks=pytest.mark.model),  # takes long
)
"""Pages whose examples are run on a small model that has the default one's layers and heads."""
WHOLE_STUDY: dict[str, Any] = {
    "models": ["base", "tuned"],
    "prompts": {"items": [{"instruction": "Answer.", "question": "Where?", "rules": "Be brief."}]},
}
"""What the parts of a study file on the pages are put into."""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with 30 layers of 9 heads and a chat template, as the default model has."""
    from transformers import LlamaForCausalLM

    folder = tmp_path_factory.mktemp("stand-in") / "model"
    sizes = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 36}
    LlamaForCausalLM(tiny.llama_config(**sizes, max_position_embeddings=4096)).save_pretrained(folder)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def at_home(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages' commands expect around them."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "reference", tmp_path / "reference")
    return tmp_path


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and content."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[list[str]]:
    """The attnscope commands of a block, without the program's name."""
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("attnscope ")]


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_of_a_page_work(page: str, run: Run, at_home: Path, stand_in: Path) -> None:
    if page == "explorer.md":
        _explored_runs(at_home, stand_in)
    names: dict[str, Any] = {}
    for language, block in blocks(page):
        if language == "python":
            exec(block.replace(f'"{DEFAULT}"', repr(str(stand_in))), names)  # noqa: S102
        elif language == "yaml":
            _parse(block)
        elif language == "":
            for words in commands(block):
                _perform(words, run, stand_in)


def _explored_runs(home: Path, stand_in: Path) -> None:
    """The runs that the page serves: of one small study, under their names."""
    parts = study([{"label": "one", "source": str(stand_in)}], conditions=CONDITIONS[:2])
    parts["prompts"]["items"] = parts["prompts"]["items"][:5]
    small = performed(parts, home)
    for name in ("filler-vs-sentence", "symbols", "filler"):
        shutil.copytree(small.path, home / "runs" / name)


def _parse(block: str) -> None:
    """A study file, or the keys of one."""
    part = yaml.safe_load(block)
    if "panels" in part:
        part = {"figures": [{"name": "along", "kind": "lines", **part}]}
    if "file" in part.get("prompts", {}):  # a file of the reader's own
        part["prompts"] = {**WHOLE_STUDY["prompts"], "chat": part["prompts"]["chat"]}
    text = yaml.safe_dump({**WHOLE_STUDY, **part})
    with_options(parse_study(text, "docs"), Path("docs.yaml"))


def _perform(words: list[str], run: Run, stand_in: Path) -> None:
    """A command of a page, on the small model and a few prompts."""
    verb, name = words[0], words[1] if len(words) > 1 else ""
    if name.startswith("sources/"):  # models of others
        swaps = dict([words[3].split("=")]) if "--model" in words else {}
        assert request_study(name, swaps=swaps).study.figures
        return
    words = [str(stand_in) if word == DEFAULT else word for word in words]
    if verb == "serve":
        with serving(*words[1:], "--port", free_port()) as address, urlopen(f"{address}api/runs") as answer:  # noqa: S310
            assert b"finished" in answer.read()
        return
    if verb in ("measure", "knockout"):
        words += ["--model", str(stand_in)]
    if verb == "check":
        words += ["--tokens", "16"]
    if verb == "run":
        words += [] if "--limit" in words else ["--limit", "2"]
    if name in bundled_studies():
        bundled = yaml.safe_load(bundled_studies()[name].read_text(encoding="utf-8"))
        words += [word for model in bundled["models"] for word in ("--model", f"{model['label']}={stand_in}")]
    done = run(*words)
    assert done.code == 0, (words, done.err)
    if verb == "new":
        path = Path(name)
        path.write_text(path.read_text(encoding="utf-8").replace(DEFAULT, str(stand_in)), encoding="utf-8")


def test_the_entry_point_on_the_page_of_measures_is_the_plugins() -> None:
    (shown,) = [tomllib.loads(block) for language, block in blocks("measures.md") if language == "toml"]
    plugin = tomllib.loads((ROOT / "tests" / "plugin" / "pyproject.toml").read_text(encoding="utf-8"))
    family = "attnscope.measures"
    assert shown["project"]["entry-points"][family] == plugin["project"]["entry-points"][family]


def public_callables() -> Iterator[tuple[str, Any]]:
    """The public functions, and the public methods and properties of public classes."""
    for name in attnscope.__all__:
        thing = getattr(attnscope, name)
        yield name, thing
        if not inspect.isclass(thing):
            continue
        for base in thing.__mro__:
            for member, each in vars(base).items() if base.__module__.startswith("attnscope") else ():
                if member.startswith("_") and member != "__getitem__":
                    continue
                if isinstance(each, property | cached_property):
                    yield f"{name}.{member}", each.fget if isinstance(each, property) else each.func
                elif inspect.isfunction(each) or isinstance(each, classmethod):
                    yield f"{name}.{member}", getattr(thing, member)


def test_the_public_api_is_typed_documented_and_listed() -> None:
    """An editor can complete every option: each parameter has a type, and none is `**options: Any`."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"^#+ (?:attnscope\.)?(.+)$", page, re.MULTILINE))
    called_by_attnscope = re.findall(r"^(.*): called by attnscope while the model runs", page, re.MULTILINE)
    inner = {f"Recording.{name}" for line in called_by_attnscope for name in re.findall(r"`(\w+)`", line)}
    for name, thing in public_callables():
        signature = inspect.signature(thing)
        for parameter in signature.parameters.values():
            if parameter.name != "self":
                _check_parameter(name, parameter)
        assert inspect.isclass(thing) or signature.return_annotation is not signature.empty, name
        assert (thing.__doc__ or "").strip(), name
        assert name.replace(".__getitem__", "[...]") in titles | inner, name


def _check_parameter(name: str, parameter: inspect.Parameter) -> None:
    assert parameter.annotation is not parameter.empty, (name, parameter)
    starred = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    assert not (starred and parameter.annotation in ("Any", "object", Any)), (name, parameter)
