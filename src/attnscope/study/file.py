"""Study files: YAML -> a validated Study. Errors name the line and key, before any model is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from attnscope.arguments import path_of
from attnscope.errors import AttnscopeError, near
from attnscope.study import checkpoints
from attnscope.study.consistency import NAMED, Problem, problems, problems_with_prompts
from attnscope.study.prompts import PromptList
from attnscope.study.schema import COLOUR, LINE, NAME, ModelSpec, Study

_TYPES = {
    ("model_type", "dict_type", "mapping_type", "model_attributes_type"): ("a mapping", "keys and values"),
    ("list_type",): ("a list", "a list such as [a, b]"),
    ("int_type", "int_parsing", "int_from_float"): ("a whole number", "a number such as 3"),
    ("float_type", "float_parsing"): ("a number", "a number such as 0.5"),
    ("string_type",): ("text", "text, in quotes if it looks like a number"),
    ("bool_type", "bool_parsing"): ("true or false", "true or false"),
}
"""pydantic's names for wrong types -> what is expected, and how that is written."""
_PATTERNS = {COLOUR: "a colour such as '#ff7f0e'", LINE: "text on one line", NAME: NAMED}
BUNDLED = Path(str(files("attnscope.study") / "bundled"))


def bundled_studies() -> dict[str, Path]:
    """The studies that come with attnscope, by name."""
    paths = sorted(BUNDLED.rglob("*.yaml"))
    return {path.relative_to(BUNDLED).with_suffix("").as_posix(): path for path in paths}


def find_study(name: str | Path) -> Path:
    """The file of a study, by bundled name or path."""
    bundled = bundled_studies()
    name = path_of(name, "name", "a bundled study or a study file")
    if name in bundled:
        return bundled[name]
    path = Path(name)
    if path.is_file():
        return path
    looks_like_a_file = path.suffix in (".yaml", ".yml") or "/" in name
    raise AttnscopeError(
        "there is no such study" if not looks_like_a_file else "there is no such study file",
        where=name,
        allowed=near(name, bundled),
        todo="name a bundled study or a .yaml file; 'attnscope new FILE' writes one to start from",
    )


def read_study(path: Path, instead: ModelSpec | None = None) -> Study:
    """The study in a file, checked as far as it can be without a model.

    instead: a model in place of the study's own, which then need not exist; the study has no figures and no
    interventions then.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AttnscopeError(
            f"can't read the study: {error}", where=str(path), allowed="a UTF-8 text file", todo="check the file"
        ) from error
    return parse_study(text, str(path), instead)


class Plain(yaml.SafeLoader):
    """Reads text as text: `12:30`, `0777`, `1_000`, `2001-01-01`, `yes` and `on` are what YAML 1.2 takes them for."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


for _kind, _first, _pattern in (
    ("null", "~nN", r"~|null|Null|NULL"),
    ("bool", "tTfF", r"true|True|TRUE|false|False|FALSE"),
    ("int", "-+0123456789", r"[-+]?(?:0|[1-9][0-9]*)"),
    ("float", "-+.0123456789", r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
    ("float", "-+.", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"),
    ("merge", "<", r"<<"),
):
    Plain.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(rf"^(?:{_pattern})$"), list(_first))
Plain.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])


class Quick(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads the same ten times as fast, where PyYAML comes with libyaml; its errors say less."""

    yaml_implicit_resolvers = Plain.yaml_implicit_resolvers


def _read(read: Callable[..., Any], text: str) -> Any:
    try:
        return read(text, Loader=Quick)
    except (yaml.YAMLError, RecursionError):
        return read(text, Loader=Plain)


def loaded(text: str) -> Any:
    """What a study file contains."""
    return _read(yaml.load, text)


def parse_study(text: str, where: str, instead: ModelSpec | None = None) -> Study:
    """instead: as in read_study."""
    root, data = _composed(text, where)
    entries: Sequence[int] = ()
    if instead is not None:
        measured = {key: value for key, value in data.items() if key not in ("interventions", "outcome")}
        data = {**measured, "models": [instead], "figures": []}
    else:
        data, entries = _written_out(data, root, where)
    try:
        study = Study.model_validate(data)
    except ValidationError as error:
        raise _located(_in_file(problem_of(error), entries), root, where) from None
    for problem in problems(study):
        raise _located(_in_file(problem, entries), root, where)
    return study


def _written_out(data: dict[str, Any], root: yaml.Node, where: str) -> tuple[dict[str, Any], Sequence[int]]:
    """The study with each checkpoint as a model of its own, and the entry in the file that each model comes from."""
    given = data.get("models")
    if not isinstance(given, list) and not checkpoints.is_entry(given):
        return data, ()
    models: list[Any] = []
    entries: list[int] = []
    for number, entry in enumerate(given if isinstance(given, list) else [given]):
        try:
            more = checkpoints.models_of(entry) if checkpoints.is_entry(entry) else [entry]
        except ValidationError as error:
            problem = problem_of(error)
            raise _located(replace(problem, at=("models", number, *problem.at)), root, where) from None
        except checkpoints.CheckpointsError as error:
            at = ("models", number, error.key)
            raise _located(Problem(at, error.what, error.allowed, error.todo), root, where) from None
        models += more
        entries += [number] * len(more)
    return {**data, "models": models}, entries


def _in_file(problem: Problem, entries: Sequence[int]) -> Problem:
    """The problem at its place in the file, where checkpoints of one entry are several models."""
    first, *others = problem.at or ("",)
    if first == "models" and others and isinstance(others[0], int) and others[0] < len(entries):
        return replace(problem, at=(first, entries[others[0]], *others[1:]))
    return problem


def refuse_misfits(study: Study, prompts: PromptList, path: Path) -> None:
    """Refuse what doesn't fit the prompts, such as segments that none has; possible only once they are read."""
    refuse(problems_with_prompts(study, prompts.layouts, prompts.contents), path)


def refuse(problems: Iterable[Problem], path: Path) -> None:
    """Refuse a study file for the first of these problems, naming its line and key; does nothing if there are none."""
    for problem in problems:
        raise _located(problem, _composed(path.read_text(encoding="utf-8"), str(path))[0], str(path))


def _composed(text: str, where: str) -> tuple[yaml.MappingNode, Any]:
    """A study file as nodes, which know their lines, and as data."""
    try:
        root = _read(yaml.compose, text)
        data = loaded(text)
        if isinstance(root, yaml.MappingNode):
            _refuse_duplicates(root, where)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also numbers of thousands of digits
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        message = str(getattr(error, "problem", None) or error)
        if "alphabetic or numeric character" in message:
            message = "an unquoted * or & begins a reference, so write '*'"
        raise AttnscopeError(
            f"the study is not valid YAML: {message}",
            where=f"{where}{line}",
            allowed="a mapping of keys; quote text that contains : # * or, between braces, ? and ,",
            todo="fix that line",
        ) from error
    if not isinstance(root, yaml.MappingNode):
        raise AttnscopeError(
            "the study is empty" if root is None else "the study is not a mapping",
            where=where,
            allowed=f"the keys {', '.join(Study.model_fields)}",
            todo="'attnscope new FILE' writes a study to start from",
        )
    return root, data


def _refuse_duplicates(node: yaml.Node, where: str, above: tuple[int, ...] = ()) -> None:
    """YAML silently keeps the last of two equal keys."""
    if id(node) in above:
        raise AttnscopeError(
            "the study contains itself",
            where=f"{where}, line {node.start_mark.line + 1}",
            allowed="YAML without cycles",
            todo="write it out",
        )
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise AttnscopeError(
                    f"key '{key.value}' occurs twice",
                    where=f"{where}, line {key.start_mark.line + 1}",
                    allowed="each key once",
                    todo="remove one of them",
                )
            seen.add(key.value)
            _refuse_duplicates(value, where, above)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_duplicates(value, where, above)


def problem_of(error: ValidationError) -> Problem:
    """The pydantic error that most likely fits what was meant, in our own words."""
    every = error.errors(include_url=False)
    top = every[0]["loc"][:2]
    first = max((each for each in every if each["loc"][:2] == top), key=_nearness)
    context: dict[str, Any] = first.get("ctx", {})
    location = [*first["loc"], *([context["key"]] if first["type"] == "unknown_key" else [])]
    what, allowed = _words(first, context)
    if first["type"] == "missing":
        what = f"key '{location[-1]}' is missing"
    return Problem(tuple(location), what, allowed)


_BOUNDS = {
    "greater_than_equal": ("ge", "{} or more"),
    "less_than_equal": ("le", "{} or less"),
    "greater_than": ("gt", "more than {}"),
    "less_than": ("lt", "less than {}"),
}


def _nearness(error: Any) -> tuple[int, bool]:
    """Sorts the errors of a union's members by how likely each is about what was meant."""
    own = ("unknown_key", "too_short", "too_long", *_BOUNDS)
    return len(error["loc"]), error["type"] in own


def _words(error: Any, context: dict[str, Any]) -> tuple[str, str]:
    """What is wrong and what is allowed; in our own words where pydantic's are for programmers."""
    kind, message, given = error["type"], error["msg"], str(error["input"])[:60]
    allowed = context.get("near") or "see docs/study-file.md for this key"
    if kind in ("unknown_key", "one_of", "empty", "unquoted", "missing"):
        return message, allowed
    if kind == "literal_error":
        return f"'{given}' is not allowed here", str(context["expected"])
    if kind in ("too_long", "too_short"):
        limit = "at most" if kind == "too_long" else "at least"
        count, bound = context["actual_length"], context.get("max_length", context.get("min_length"))
        return f"the list has {count} item{'s' * (count != 1)}", f"{limit} {bound}"
    if kind in _BOUNDS:
        key, bound = _BOUNDS[kind]
        return f"{given} is out of range", bound.format(context[key])
    if kind == "string_pattern_mismatch":
        return f"'{given}' has the wrong form", _PATTERNS.get(context["pattern"], f"text like {context['pattern']}")
    for kinds, (expected, written) in _TYPES.items():
        if kind in kinds:
            return f"{_as_written(error['input'])} is not {expected}", written
    return f"{message[0].lower()}{message[1:]}, not {given!r}", allowed


def _as_written(value: Any) -> str:
    """A value as it is in the file, so that text such as '3' can be told from a number."""
    words = {None: "nothing", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else repr(value)[:60]


def place_in(text: str, where: str, at: Sequence[str | int]) -> str:
    """The line and key of a study file that a path leads to, for an error. text: the file's content; where: its name"""
    return _place(_composed(text, where)[0], where, at)


def _place(root: yaml.Node, where: str, at: Sequence[str | int]) -> str:
    line, path = _line(root, at)
    key = ".".join(map(str, path))
    return f"{where}, line {line}" + (f", {key}" if key else "")


def _located(problem: Problem, root: yaml.Node, where: str) -> AttnscopeError:
    place = _place(root, where, problem.at)
    return AttnscopeError(problem.what, where=place, allowed=problem.allowed, todo=problem.todo)


def _line(node: yaml.Node, location: Sequence[str | int]) -> tuple[int, list[str | int]]:
    """The line (from 1) of the deepest node on the path, and the part of the path that exists."""
    line, path = node.start_mark.line + 1, []
    for step in location:
        entry = None
        if isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if key.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            entry = (node.value[step], node.value[step])
        if entry is None:
            continue  # a step of pydantic's own, such as the name of a union's member
        key, node = entry
        line = key.start_mark.line + 1
        path.append(step)
    return line, path
