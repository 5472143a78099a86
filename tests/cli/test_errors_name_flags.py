"""The same mistake made in Python and on the command line: one names the parameter, the other the flag."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import typer

import attnscope
from attnscope.cli.flags import flag_name, flags_of
from attnscope.cli.main import app
from attnscope.errors import AttnscopeError, Parameter
from attnscope.studies import request_study, run_study
from tests.cli.conftest import Run
from tests.models import tiny

SOURCES = Path(attnscope.__file__).parent


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    tiny.save_model(tmp_path / "llama")
    return tmp_path / "llama"


def said(mistake: Callable[[], object]) -> str:
    with pytest.raises(AttnscopeError) as refusal:
        mistake()
    text = str(refusal.value)
    assert "--" not in text
    return text


@pytest.mark.parametrize(
    ("option", "value", "words", "parameter"),
    [
        ("device", "tpu", ["--device", "tpu"], "device='tpu'"),
        ("dtype", "float33", ["--dtype", "float33"], "dtype='float33'"),
        ("revision", "v9", ["--revision", "v9"], "revision='v9'"),
    ],
)
def test_loading(run: Run, llama: Path, option: str, value: str, words: list[str], parameter: str) -> None:
    assert parameter in said(lambda: attnscope.load(str(llama), **{option: value}))  # type: ignore[arg-type]
    done = run("measure", "ab", "--model", llama, *words)
    done.refuses(" ".join(words))
    assert parameter not in done.err


def test_a_switch_that_must_be_given(run: Run, tmp_path: Path) -> None:
    tiny.save_model(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "pytorch_model.bin")
    assert "pass allow_pickle=True" in said(lambda: attnscope.load(str(tmp_path / "model")))
    run("measure", "ab", "--model", tmp_path / "model").refuses("pass --allow-pickle")


def test_a_switch_that_must_be_left_out(run: Run, llama: Path) -> None:
    assert "leave out chat=True" in said(lambda: attnscope.load(str(llama)).measure("ab", chat=True))
    run("measure", "ab", "--model", llama, "--chat").refuses("(--chat)", "leave out --chat")


def test_limits_and_labels_of_a_study(run: Run) -> None:
    assert "limit=0" in said(lambda: request_study("filler", limit=0))
    assert "(models=)" in said(lambda: request_study("filler", models=["nobody"]))
    run("run", "filler", "--models", "nobody", "--dry-run").refuses("(--models)", "nobody")
    assert "(swaps=)" in said(lambda: request_study("filler", swaps={"nobody": "x"}))
    run("run", "filler", "--model", "nobody=x", "--dry-run").refuses("(--model)", "nobody")


def test_one_source_for_several_models_is_answered_with_what_to_write(run: Run) -> None:
    label = request_study("symbols").study.models[0].label
    mistake = said(lambda: request_study("symbols", instead="org/x"))
    assert "(instead='org/x')" in mistake
    assert f"swaps={{'{label}': 'org/x'}}" in mistake
    run("run", "symbols", "--model", "org/x", "--dry-run").refuses("(--model org/x)", f"--model {label}=org/x")


def test_a_folder_that_is_not_a_run(run: Run, tmp_path: Path, llama: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    study = tmp_path / "study.yaml"
    study.write_text(f"models: [{llama}]\nprompts: {{items: [{{text: ab}}], plain: '{{text}}'}}\nconditions: [none]\n")
    assert "choose another with out=" in said(lambda: run_study(str(study), tmp_path / "mine"))
    run("run", study, "--out", tmp_path / "mine").refuses("choose another with --out")


def test_a_command_without_the_flag_keeps_the_parameters_name() -> None:
    group = typer.main.get_command(app)
    assert "--device" in flags_of(group, ["measure", "ab"])
    assert "--device" not in flags_of(group, ["run", "filler"])


def test_a_part_of_an_error_may_mix_words_and_parameters() -> None:
    error = AttnscopeError("a", where=Parameter("layers"), allowed="b", todo=("pass ", Parameter("chat", False), "."))
    assert str(error) == "a (layers=): b; pass chat=False"
    assert error.message(lambda parameter: f"<{parameter.name}>") == "a (<layers>): b; pass <chat>"


# fmt: off
PYTHON_ONLY = {
    "align", "beside", "classes", "columns", "condition", "conditions", "csv", "edits", "every", "folder", "head",
    "ids", "keys", "layer", "loaded", "measure", "minus", "name", "number", "other", "over", "patch", "path",
    "rounds", "rows", "rule", "sample", "share", "text", "texts", "tokenizer", "window",
}
# fmt: on
"""The command line takes one text and no positions, shows tables instead of letting you ask a record or a run, and has
no sweeps and no patching."""

Helpers = dict[tuple[str, str], tuple[int, str]]
"""(file, function) -> at which place, and under which name, a function takes the name of a parameter."""


def test_every_parameter_that_an_error_names_is_a_flag_of_some_command() -> None:
    group = typer.main.get_command(app)
    flags = {flag for verb in group.commands for flag in flags_of(group, [verb])}  # type: ignore[attr-defined]
    named = named_parameters({str(file): ast.parse(file.read_text(encoding="utf-8")) for file in SOURCES.rglob("*.py")})
    assert {"device", "out", "limit"} <= named
    assert {name for name in named if flag_name(name) not in flags} == PYTHON_ONLY


def test_a_parameter_is_seen_however_an_error_comes_by_its_name() -> None:
    one = """
def refuse(value, what="quiet"): raise AttnscopeError("no", where=Parameter(what))
def _more(what, why): refuse(why, what=what)
def seen(): Parameter("plain"), _more("passed", "not this"), refuse(1, f"formatted[{1}]")
class Some:
    def _complain(self, what): _more(what, 1)
    def seen(self): self._complain("method")
"""
    other = "refuse(1, 'elsewhere'); _more('another function', 1); refuse(1, chosen)"
    found = named_parameters({"one.py": ast.parse(one), "other.py": ast.parse(other)})
    assert found == {"quiet", "plain", "passed", "formatted", "method", "elsewhere"}


def named_parameters(files: Mapping[str, ast.Module]) -> set[str]:
    """The names that `Parameter` gets: where it is called, and where functions are called that hand one on to it."""
    helpers: Helpers = {("", "Parameter"): (0, "name")}
    named: set[str] = set()
    known = 0
    while known < len(helpers):
        known = len(helpers)
        for file, tree in files.items():
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef):
                    named |= _hands_on(file, function, helpers)
    for file, tree in files.items():
        for given in _names_given(file, tree, helpers):
            if isinstance(given, ast.JoinedStr):  # f"swaps[{label!r}]"
                given = given.values[0]
            if isinstance(given, ast.Constant):
                named.add(str(given.value).partition("[")[0])
    return named


def _hands_on(file: str, function: ast.FunctionDef, helpers: Helpers) -> set[str]:
    """Add a function to the helpers if it hands a name on; return that name's default, if there is one."""
    arguments = [each.arg for each in function.args.args]
    for given in _names_given(file, function, helpers):
        if isinstance(given, ast.Name) and given.id in arguments:
            place = arguments.index(given.id)
            helpers[file * function.name.startswith("_"), function.name] = place - (arguments[0] == "self"), given.id
            defaults = dict(zip(reversed(arguments), reversed(function.args.defaults), strict=False))
            default = defaults.get(given.id)
            return {str(default.value)} if isinstance(default, ast.Constant) else set()
    return set()


def _names_given(file: str, tree: ast.AST, helpers: Helpers) -> Iterator[ast.expr]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        own = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "self"
        name = call.func.attr if own and isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        helper = helpers.get((file, name)) or helpers.get(("", name))
        if helper is None:
            continue
        place, keyword = helper
        yield from call.args[place : place + 1]
        yield from (each.value for each in call.keywords if each.arg == keyword)
